from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.job import Edge, Mode, NewJob, Receipt, Status
from windlass.core.outcome import Error
from windlass.core.take import Offset, Source, Take, TakeStatus, jobs_of, rule_take, taken
from windlass.errors import ContractError

LOG = Source("orders", "first")
ERROR = Error(type="Unreadable")
texts = st.sampled_from(("", "1", "2"))


def _take(*groups: list[NewJob], **more: Any) -> Take:
    return Take(source=LOG, expect=None, then="1", groups=groups, **more)


@given(st.none() | st.tuples(texts, texts), texts, st.none() | texts)
def test_an_offset_moves_from_where_it_is_expected_and_under_its_identity_alone(
    kept: tuple[str, str] | None, source: str, expect: str | None
):
    status = rule_take(*(kept or (None, None)), source, expect)
    if kept is None:
        assert status == (TakeStatus.TAKEN if expect is None else TakeStatus.RACED)
    elif kept[0] != source:
        assert status is TakeStatus.FOREIGN
    else:
        assert status == (TakeStatus.TAKEN if kept[1] == expect else TakeStatus.RACED)


def test_jobs_that_are_born_dead_have_neither_key_nor_parents_nor_time():
    said: dict[str, Any] = {"task": "t", "payload": b"x", "headers": {"a": "b"}, "tags": ("c",), "flow": "f"}
    job = NewJob(id="j", key="k", mode=Mode.REPLACE, window=1, delay=1, expires=1, after=(Edge("p"),), **said)
    other = NewJob(id="o", key="k", delay=1, task="t")
    assert jobs_of(_take([job], [other], dead={"j": ERROR})) == [NewJob(id="j", **said), other]
    assert jobs_of(_take([job], [other])) == [job, other]


def test_who_is_to_be_born_dead_is_in_a_group():
    with pytest.raises(ContractError, match="job stranger is to be born dead and is in no group"):
        jobs_of(_take([NewJob(id="j", task="t")], dead={"j": ERROR, "stranger": ERROR}))


def test_a_take_that_is_too_large_says_by_how_much():
    jobs = [NewJob(id=f"{nth}", task="t") for nth in range(501)]
    with pytest.raises(ContractError, match=r"at most 1000 jobs, .*, got 1002, 0 and 0: take less at once"):
        jobs_of(_take(jobs, jobs))


@given(st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=4))
def test_receipts_have_the_shape_of_the_groups(shape: list[list[int]]):
    statuses = (Status.CREATED, Status.DUPLICATE, Status.REPLACED, Status.CREATED)
    groups = [
        [NewJob(id=f"{row}.{nth}", task="t") for nth in range(len(ids))] for row, ids in enumerate(shape)
    ]
    receipts = [
        [Receipt(statuses[code], job.id) for code, job in zip(codes, group, strict=True)]
        for codes, group in zip(shape, groups, strict=True)
    ]
    answer = taken(_take(*groups), [each for group in receipts for each in group], 7)
    assert answer.receipts == tuple(map(tuple, receipts))
    assert (answer.status, answer.offset) == (TakeStatus.TAKEN, Offset(LOG, "1", 7))


def test_one_refused_job_refuses_the_take():
    group = [NewJob(id="a", task="t"), NewJob(id="b", task="t")]
    refused = [Receipt(Status.CREATED, "a"), Receipt(Status.REFUSED, "b")]
    answer = taken(_take(group), refused, 7)
    assert (answer.status, answer.offset, answer.receipts) == (TakeStatus.REFUSED, None, (tuple(refused),))
