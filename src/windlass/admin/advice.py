"""Why a job waits, in plain words, and what to do about it."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from windlass.admin.views import moment, seconds
from windlass.core.job import JobDetail
from windlass.core.query import AHEAD_LIMIT, Explanation, Why
from windlass.core.session import SessionView
from windlass.core.state import State
from windlass.core.strike import is_strike_key
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, JobId, Micros


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not running, or what it does."""

    job: JobId
    task: str
    queue: str
    lane: str
    state: str
    why: str
    """The name of the reason, for programs."""
    text: str
    """The reason as a sentence."""
    do: str
    """What to do; empty where there is nothing to do but wait."""
    ahead: int
    next_in: float | None
    """Seconds until the reason passes by itself, where that is known."""
    next_at: datetime | None
    error: str | None


def advise(
    job: JobDetail,
    explanation: Explanation,
    *,
    holder: SessionView | None,
    served: Sequence[str] | None,
    now: Micros,
) -> Advice:
    """Put an explanation into words. `holder` is the session that runs the job, `served` the queues that live
    workers serve; None: some that are not to be told.
    """
    why = Why.FINISHED if explanation.why is Why.UNKNOWN else explanation.why  # only its end is remembered
    text, do = _words(why, job, explanation, holder, served, now)
    error = explanation.error or job.error
    return Advice(
        job=job.id,
        task=job.task,
        queue=job.queue,
        lane=job.lane,
        state=job.state,
        why=why.name.lower(),
        text=text,
        do=do,
        ahead=explanation.ahead,
        next_in=None if explanation.next_in is None else seconds(explanation.next_in),
        next_at=None if explanation.next_in is None else moment(now + explanation.next_in),
        error=None if error is None else f"{error.type}: {error.message}",
    )


def _words(
    why: Why,
    job: JobDetail,
    explanation: Explanation,
    holder: SessionView | None,
    served: Sequence[str] | None,
    now: Micros,
) -> tuple[str, str]:
    match why:
        case Why.RUNNING:
            return _running(job, holder, now)
        case Why.FINISHED | Why.UNKNOWN:
            return _finished(job, now)
        case Why.PARENT_DEAD | Why.PARENTS | Why.FOLLOWS:
            return _blocked(why, job, explanation)
        case Why.HELD | Why.RETRYING | Why.NOT_DUE:
            return _scheduled(why, job, explanation)
        case Why.NO_WORKER:
            return _unserved(job, served)
        case _:
            return _ready(why, job, explanation)


def _running(job: JobDetail, holder: SessionView | None, now: Micros) -> tuple[str, str]:
    text = f"it is running, attempt {job.attempt} of {job.max_attempts}"
    if holder is not None:
        text += f", in process {holder.info.pid} on {holder.info.host or 'an unnamed host'}"
        text += f" (session {holder.id}, last heard of {length(holder.silent_for)} ago)"
    # A fence is the store's time of the claim, unless clocks went back.
    if 0 < job.fence <= now:
        text += f", since {length(now - job.fence)}"
    do = ""
    if job.cancel_requested:
        do = (
            "its worker was asked to stop it; a def task in a thread goes on until it looks at "
            "current.cancelled"
        )
    return text, do


def _finished(job: JobDetail, now: Micros) -> tuple[str, str]:
    ago = "" if job.finished_at is None else f" {length(max(0, now - job.finished_at))} ago"
    reason = "" if job.reason is None else f" ({job.reason})"
    if job.state is State.DEAD:
        return f"it died{ago}{reason}", "see its error, then replay it, or discard it"
    return f"it finished{ago}: {job.state}{reason}", ""


def _blocked(why: Why, job: JobDetail, explanation: Explanation) -> tuple[str, str]:
    if why is Why.PARENT_DEAD:
        return "a parent that it waits for is dead", f"replay or discard the parent{_parents(job)}"
    if why is Why.FOLLOWS:
        key = "" if job.key is None else f' "{job.key}"'
        return f"the job before it under its key{key} is still running; it runs next", ""
    count = job.waiting_for
    waits = "a parent that is" if count == 1 else f"{count:,} parents that are"
    named = explanation.detail + (", …" if count > explanation.detail.count(",") + 1 else "")
    return f"it waits for {waits} not done: {named}", "explain the parents, one of them waits itself"


def _parents(job: JobDetail) -> str:
    parents = [edge.parent for edge in job.after]
    return f": one of {', '.join(parents[:3])}{', …' if len(parents) > 3 else ''}" if parents else ""


def _scheduled(why: Why, job: JobDetail, explanation: Explanation) -> tuple[str, str]:
    left = explanation.next_in or 0
    soon = f"in {length(left)}" if left >= SECOND // 10 else "now"
    if why is Why.HELD:
        times = "" if job.held is None else f" ({_times(job.held.times)} so far)"
        if job.held is not None and is_strike_key(job.held.key):
            lift = f"windlass control APP lift {job.held.key.partition(':')[2]}"
            return f"held: {explanation.detail}; it is looked at again {soon}", f"to let it run: {lift}"
        return (
            f"no worker can run it{times}: {explanation.detail}; it is offered again {soon}",
            f'start a worker whose code has the task "{job.task}" and reads its payload, or cancel it',
        )
    if why is Why.RETRYING:
        return f"attempt {job.attempt} of {job.max_attempts} failed; the next one is due {soon}", ""
    return f"it is not due yet: it becomes ready {soon}", ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _unserved(job: JobDetail, served: Sequence[str] | None) -> tuple[str, str]:
    others = "; no worker is alive at all"
    if served is None:
        others = ""
    elif served:
        others = f"; live workers serve: {', '.join(served)}"
    return f'no live worker serves queue "{job.queue}"{others}', f'start a worker for queue "{job.queue}"'


def _ready(why: Why, job: JobDetail, explanation: Explanation) -> tuple[str, str]:
    queue, lane = f'queue "{job.queue}"', f'lane "{job.lane}" of queue "{job.queue}"'
    token = f"; the next token comes in {length(explanation.next_in or 0)}"
    many = f"{AHEAD_LIMIT:,}+" if explanation.ahead >= AHEAD_LIMIT else f"{explanation.ahead:,}"
    jobs = "job goes" if explanation.ahead == 1 else "jobs go"
    words: dict[Why, tuple[str, str]] = {
        Why.QUEUE_PAUSED: (f"{queue} is paused", f"resume {queue}"),
        Why.LANE_PAUSED: (f"{lane} is paused", f"resume {lane}"),
        Why.SEQUENCE: (
            f"an earlier job of its lane is not finished: {explanation.detail}",
            "explain that job: this one follows it",
        ),
        Why.QUEUE_CONCURRENCY: (
            f"{queue} is at its concurrency limit",
            "wait for a job to end, or raise the limit",
        ),
        Why.QUEUE_RATE: (f"{queue} is at its rate limit{token}", "wait, or raise the limit"),
        Why.LANE_CONCURRENCY: (
            f"{lane} is at its concurrency limit",
            "wait for a job of the lane to end, or raise the limit",
        ),
        Why.LANE_RATE: (f"{lane} is at its rate limit{token}", "wait, or raise the limit"),
        Why.SUSPECT: (
            f"it was running in {job.crashes} crashes, so it waits for a worker that runs it alone",
            "see the causes in its history; cancel it if it is the culprit",
        ),
        Why.AHEAD: (f"{many} {jobs} first in its lane", "add workers or slots if that takes too long"),
        Why.NEXT: ("it is first in its lane: the next free slot takes it", "if it stays so, add slots"),
    }
    return words[why]


def length(micros: Micros) -> str:
    """A duration in two units at the most: "3 h 5 min"."""
    if micros < MINUTE:
        return f"{micros / SECOND:.1f} s"
    unit, name, below, small = next(step for step in _STEPS if micros >= step[0])
    rest = micros % unit // below
    return f"{micros // unit} {name}" + (f" {rest} {small}" if rest else "")


_STEPS = ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", SECOND, "s"))
