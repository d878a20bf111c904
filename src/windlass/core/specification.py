"""What a schedule says: when it is due, the call that each tick makes, and what becomes of ticks that were
missed or come while the job of an earlier one is unfinished. To a store it is bytes.
"""

from typing import Any, Literal, TypeAlias

import msgspec

from windlass.core.duration import LONGEST
from windlass.core.job import NewJob, check_new_job
from windlass.core.option import choice, whole
from windlass.core.schedule import CAP, GRACE, MOST_TICKS, CatchUp, Rule
from windlass.core.units import JobId, Micros
from windlass.errors import InvalidOption, UnreadablePayload

Overlap: TypeAlias = Literal["allow", "skip", "queue"]
"""While an earlier tick's job is unfinished, the next one: runs beside it, is left out, or waits for it."""


class Template(NewJob, frozen=True, kw_only=True, omit_defaults=True):
    """A job that is made with every tick; its id is drawn then."""

    id: JobId = ""


class Specification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule without its name. Durations and instants in microseconds."""

    rule: Rule
    call: Template
    start: Micros | None = None
    end: Micros | None = None
    jitter: Micros = 0
    catch_up: CatchUp = "skip"
    grace: Micros = GRACE
    cap: int = CAP
    overlap: Overlap = "allow"

    def job(self, job_id: JobId) -> NewJob:
        """The job of one tick."""
        return NewJob(**_fields(self.call, job_id))


def template_of(job: NewJob) -> Template:
    """The template that makes jobs like this one; `InvalidOption` for what would not be right."""
    check_new_job(job)
    if job.run_at is not None:
        raise InvalidOption("a scheduled call cannot have run_at: the schedule says when")
    if job.after:
        raise InvalidOption("a scheduled call cannot have parents (after=)")
    return Template(**_fields(job, ""))


def check_specification(specification: Specification) -> Specification:
    """Refuse what has no meaning. Called at every door."""
    choice(specification.catch_up, name="catch_up", among=("skip", "one", "all"))
    choice(specification.overlap, name="overlap", among=("allow", "skip", "queue"))
    whole(specification.cap, name="cap", least=1, most=MOST_TICKS)
    for name in ("grace", "jitter"):
        whole(getattr(specification, name), name=name, least=0, most=LONGEST)
    start, end = specification.start, specification.end
    if start is not None and end is not None and end <= start:
        raise InvalidOption("a schedule must end after it starts")
    return specification


def encode_specification(specification: Specification) -> bytes:
    """The bytes that a store keeps. Equal specifications have equal bytes: a store compares nothing else."""
    return msgspec.json.encode(specification, order="deterministic")


def decode_specification(document: bytes) -> Specification:
    """The specification that a store kept; `UnreadablePayload` if this code cannot read it."""
    try:
        return msgspec.json.decode(document, type=Specification)
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidOption, RecursionError) as error:
        raise UnreadablePayload(f"the specification of a schedule is not readable: {error}") from None


def _fields(job: NewJob, job_id: JobId) -> dict[str, Any]:
    fields = {name: getattr(job, name) for name in NewJob.__struct_fields__}
    fields["id"] = job_id
    return fields
