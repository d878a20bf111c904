from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windlass.core.job import JobView
from windlass.core.query import JobQuery
from windlass.core.state import State

names = st.sampled_from(["", "a", "b"])
FILTERS = ("queue", "task", "lane", "flow")


def view(state: State, **named: Any) -> JobView:
    return JobView(
        id="j",
        priority=0,
        state=state,
        reason=None,
        attempt=0,
        max_attempts=5,
        crashes=0,
        fence=0,
        key=None,
        tags=(),
        parent=None,
        revision=0,
        accepted_at=0,
        due_at=0,
        expires_at=None,
        finished_at=None,
        session=None,
        cancel_requested=False,
        held=None,
        waiting_for=0,
        replays=0,
        progress=None,
        **named,
    )


jobs = st.builds(view, st.sampled_from(State), queue=names, task=names, lane=names, flow=names)
queries = st.builds(
    JobQuery,
    states=st.frozensets(st.sampled_from(State)),
    **{name: st.none() | names for name in FILTERS},
)


@given(queries, jobs)
def test_a_job_matches_when_every_filter_that_was_given_does(query: JobQuery, job: JobView):
    given_filters = [name for name in FILTERS if getattr(query, name) is not None]
    right = all(getattr(query, name) == getattr(job, name) for name in given_filters)
    assert query.matches(job) == (right and job.state in query.states)


@given(jobs)
def test_a_query_without_filters_asks_for_everything(job: JobView):
    assert JobQuery().matches(job)


@given(jobs)
def test_an_empty_lane_is_a_lane_and_not_the_absence_of_a_filter(job: JobView):
    assert JobQuery(lane="").matches(job) == (job.lane == "")
