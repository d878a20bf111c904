"""The checker of `test_chaos`: it knows the ledgers and what can be read of the jobs in the end, no more.

A lease is known to be live from `got` (after the claim returned) to the first attempt at its end (before the
call), so intervals that overlap are a fault, never a matter of measuring.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.broker.sqlite.chaos import VISIBILITY, Line

from windlass.core.job import JobDetail
from windlass.core.outcome import CauseKind, Outcome
from windlass.core.state import Reason, State

LeaseKey = tuple[str, int]
"""Job and fence."""


@dataclass
class Facts:
    """What the supervisor knows."""

    ends: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Sessions that ended: just before and just after the call that did it."""
    reaped: set[str] = field(default_factory=set)
    silenced: set[str] = field(default_factory=set)
    """Those that had to be reaped."""
    killed: int = 0
    frozen: int = 0


class Audit:
    """The ledgers and the last state of everything, compared."""

    def __init__(self, lines: list[Line], facts: Facts, jobs: list[JobDetail]) -> None:
        self.facts = facts
        self.jobs = {job.id: job for job in jobs}
        self.by: defaultdict[str, list[Line]] = defaultdict(list)
        for line in lines:
            self.by[line[0]].append(line)
        self.got: dict[LeaseKey, Line] = {(line[2], line[3]): line for line in self.by["got"]}
        self.started: set[LeaseKey] = {(line[2], line[3]) for line in self.by["start"]}
        self.tried: dict[LeaseKey, Line] = {(line[2], line[3]): line for line in self.by["try"]}
        self.applied = [(line[2], line[3]) for line in self.by["said"] if line[5] == "applied"]
        self.stands = {line[2]: line[4] or line[2] for line in self.by["ack"]}
        self.replaced = {line[4] for line in self.by["ack"] if line[3] == "replaced"}

    def summary(self) -> str:
        verdicts = Counter(line[5] for line in self.by["said"])
        states = Counter(str(job.reason or job.state) for job in self.jobs.values())
        crashes = Counter(job.crashes for job in self.jobs.values())
        return (
            f"{len(self.by['ack'])} acknowledged, {len(self.got)} leases, {dict(verdicts)}, {dict(states)}, "
            f"crashes {dict(crashes)}, {self.facts.killed} killed, {self.facts.frozen} frozen, "
            f"{len(self.facts.reaped)} reaped"
        )

    def problems(self) -> Iterator[str]:
        yield from (line[2] for line in self.by["odd"])
        yield from self.of_accepted()
        yield from self.of_leases()
        yield from self.of_limits()
        for job in self.jobs.values():
            yield from (f"{problem}: {job}" for problem in [*self.of_end(job), *self.of_history(job)])
        if not self.facts.frozen or not any(line[5] == "stale" for line in self.by["said"]):
            yield "nobody was frozen, or no late word was stale: nothing was tried"
        if strange := self.facts.reaped ^ (self.facts.silenced - {"-"}):
            yield f"reaped although it beat, or the other way round: {strange}"

    def of_accepted(self) -> Iterator[str]:
        """All that was acknowledged is there, and nothing else; a child if its parent's run counted."""
        born = {
            line[5]: self.jobs[line[2]].result == str(line[3]).encode() for line in self.by["try"] if line[5:]
        }
        known = set(self.stands.values()) | {child for child, counts in born.items() if counts}
        yield from (f"lost: {job}" for job in known - set(self.jobs))
        yield from (f"from nowhere: {job}" for job in set(self.jobs) - known)
        newest = {tuple(line[7]): line for line in self.by["ack"] if line[7]}
        for line in newest.values():
            job = self.jobs[self.stands[line[2]]]
            if job.payload.decode() != line[6] or job.reason is Reason.SUPERSEDED:
                yield f"the newest call was dropped: {line}, {job}"
        first = {job: min(line[1] for line in lines) for job, lines in self.per_job().items()}
        for _, at, job, status, _, delay, *_ in self.by["ack"]:
            if (
                status == "created"
                and job in first
                and job not in self.replaced
                and first[job] < at + delay - 5_000
            ):
                yield f"handed out before it was due: {job}"

    def per_job(self) -> dict[str, list[Line]]:
        found: defaultdict[str, list[Line]] = defaultdict(list)
        for line in self.by["got"]:
            found[line[2]].append(line)
        return found

    def of_leases(self) -> Iterator[str]:
        if len(self.got) != len(self.by["got"]):
            yield "a fence was handed out twice"
        yield from (f"settled twice: {key}" for key, n in Counter(self.applied).items() if n > 1)
        done = Counter(line[2] for line in self.by["said"] if line[4:] == ["done", "applied"])
        yield from (f"done twice: {job}" for job, n in done.items() if n > 1)
        for line in self.by["got"]:
            if line[8] > line[9]:
                yield f"too many attempts: {line}"
        for key in self.applied:
            _, ended = self.facts.ends.get(self.got[key][4], (0, self.tried[key][1]))
            if ended < self.tried[key][1]:
                yield f"a word counted after its session's end: {self.tried[key]}"

    def live(self, line: Line) -> tuple[int, int]:
        """The time in which a lease was live for certain."""
        _, at, job, fence, session, asked_at, *_ = line
        ends = [asked_at + VISIBILITY if session is None else self.facts.ends[session][0]]
        return at, min([*ends, *(line[1] for line in [self.tried.get((job, fence))] if line)])

    def of_limits(self) -> Iterator[str]:
        """Leases of a job, of a lane under its limit and of a queue under its limit do not overlap."""
        groups: defaultdict[tuple[str, ...], list[Line]] = defaultdict(list)
        for line in self.by["got"]:
            if self.live(line)[0] < self.live(line)[1]:
                groups[("job", line[2])].append(line)
                groups[(line[6], line[7])].append(line)
        for group, lines in groups.items():
            most = {"job": 1, "lanes": 1, "narrow": 2}.get(group[0], len(lines))
            edges = sorted(edge for line in lines for edge in zip(self.live(line), (1, -1), strict=True))
            if max(itertools.accumulate(step for _, step in edges)) > most:
                yield f"more than {most} live leases of {group}: {lines[:9]}"
            fences = [line[3] for line in sorted(lines, key=lambda line: line[1])]
            if group[0] == "job" and fences != sorted(set(fences)):
                yield f"fences of {group} do not grow: {fences}"

    def of_end(self, job: JobDetail) -> Iterator[str]:
        """Done once, or ended otherwise for a reason that the ledgers know."""
        last = self.tried.get((job.id, job.fence))
        parents = {self.jobs[self.stands[edge.parent]].state for edge in job.after}
        match job.state, job.reason:
            case State.DONE, None:
                known = last is not None and last[4] == "done" and job.result == str(job.fence).encode()
            case State.DEAD, Reason.GAVE_UP:
                known = last is not None and last[4] == "dead"
            case State.DEAD, Reason.EXHAUSTED:
                known = last is not None and last[4] == "retry" and job.attempt == job.max_attempts
            case State.DEAD, Reason.CRASHED | Reason.LOST | Reason.DEADLINE:
                known = job.attempt == job.max_attempts and job.deliveries[-1].cause is not None
            case State.CANCELLED, Reason.CANCELLED:
                known = any(line[2] == job.id for line in self.by["cancel"])
            case State.CANCELLED, Reason.SUPERSEDED:
                known = job.key is not None and "replace" in job.key
            case State.CANCELLED, Reason.PARENT_FAILED:
                known = parents == {State.CANCELLED}
            case State.BLOCKED, Reason.PARENT_DEAD:
                known = parents == {State.DEAD}
            case _:
                known = False
        if not known or job.attempt > job.max_attempts:
            yield f"an end without explanation ({last})"

    def of_history(self, job: JobDetail) -> Iterator[str]:
        """Each end of a lease is one that somebody brought about, and is charged if it was a run."""
        charged = 0
        for end in job.deliveries:
            key, kind = (job.id, end.fence), end.cause and end.cause.kind
            charged += end.outcome not in (Outcome.RELEASE, Outcome.SNOOZE)
            if kind is None and key not in self.tried:
                yield f"settled by nobody: {end}"
            judged = kind is CauseKind.CRASH and end.outcome is not Outcome.CANCELLED
            if judged and (end.outcome is Outcome.RELEASE) == (key in self.started):
                yield f"charged the wrong one: {end}"
            if kind is CauseKind.LOST and end.session not in self.facts.reaped:
                yield f"lost by a session that was not: {end}"
        if len(job.deliveries) < 10 and job.id not in self.replaced and charged != job.attempt:
            yield f"{charged} charged leases"
