"""What was enqueued, as a test looks at it: found by task, arguments and options, and told apart in words."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.client.app import Windlass
from windlass.client.handle import Job
from windlass.client.task import Sender
from windlass.core.job import JobDetail, NewJob
from windlass.core.option import shown
from windlass.core.signature import Signature
from windlass.core.state import State
from windlass.core.units import SECOND, JobId, Micros
from windlass.errors import InvalidOption, InvalidPayload, UnreadablePayload
from windlass.testing.store import seconds

__tracebackhide__ = True  # a test that fails is shown without these frames


class Enqueued:
    """A job that was enqueued, with its state now."""

    __test__ = False

    def __init__(self, app: Windlass, asked: NewJob, detail: JobDetail | None, state: State | None) -> None:
        self.asked = asked
        """What was asked for, in the words of the contract."""
        self.id: JobId = asked.id
        self.task = asked.task
        self.queue = asked.queue
        self.lane = asked.lane
        self.priority = asked.priority
        self.key = asked.key
        self.tags = asked.tags
        self.headers = asked.headers
        self.delay: float = asked.delay / SECOND
        """Seconds, as asked for."""
        self.detail = None if detail is None or detail.pruned else detail
        """All that the store has of it; None: it keeps nothing of it any more."""
        self.state = detail.state if detail is not None else state
        self.attempt = 0 if detail is None else detail.attempt
        self.job: Job[Any] = Job(app, asked.id, app.signature_of(asked.task), exists=True)
        """Its handle."""
        self._app = app

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that the call gave, by name."""
        return dict(_bound(self._app, self.asked).arguments)

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        try:
            said = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        except (InvalidPayload, UnreadablePayload):
            said = "arguments that cannot be read"
        return f"{self.task}({said})  {', '.join(self._circumstances())}"

    def _circumstances(self) -> list[str]:
        said = [str(self.state or "gone")]
        asked = self.asked
        if asked.queue != "default":
            said.append(f"queue {asked.queue}")
        told = ((name, getattr(asked, name)) for name in ("lane", "priority", "key"))
        said += [f"{name} {value}" for name, value in told if value]
        if asked.delay:
            said.append(f"delay {seconds(asked.delay)} s")
        return said


class Wanted:
    """A description of jobs: a task, perhaps with options, and some of its arguments."""

    def __init__(
        self, app: Windlass, task: Sender[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        if not isinstance(task, Sender):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"name a task, such as send or send.using(delay=60), not {shown(task)}")
        self._app = app
        self.task = task.name
        try:
            self._arguments = _parameters(app, task.name).bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{task.name}(): {error}") from None
        self._options = _options(app, task)

    def __str__(self) -> str:
        said = [f"{name}={value!r}" for name, value in self._arguments.items()]
        said += [f"{name} {_told(name, value)}" for name, value in self._options.items()]
        return f'"{self.task}"' + (f" with {', '.join(said)}" if said else "")

    def differences(self, job: Enqueued) -> list[str]:
        """Where a job of the task is not what is wanted, in words."""
        found: list[str] = []
        bound = _bound(self._app, job.asked)
        bound.apply_defaults()
        for name, wanted in self._arguments.items():
            given = bound.arguments.get(name, inspect.Parameter.empty)
            if given is inspect.Parameter.empty:
                found.append(f"{name} was not given")
            elif wanted != given:
                found.append(f"{name} is {given!r}, not {wanted!r}")
        for name, wanted in self._options.items():
            if (given := getattr(job.asked, name)) != wanted:
                found.append(f"{name} is {_told(name, given)}, not {_told(name, wanted)}")
        return found

    def matches(self, job: Enqueued) -> bool:
        """Whether a job is wanted."""
        return job.task == self.task and not self.differences(job)

    def missing(self, jobs: Sequence[Enqueued]) -> str:
        """That there is no such job, and what there is instead."""
        said = [f"no job of {self} was enqueued."]
        if same := [job for job in jobs if job.task == self.task]:
            said[0] += " These were:"
            for job in same[:_SHOWN]:
                said.append(f"  {job}")
                said += [f"    {difference}" for difference in self.differences(job)]
        elif jobs:
            said[0] += f' Nothing of "{self.task}" was, but:'
            said += [f"  {job}" for job in jobs[:_SHOWN]]
        else:
            said[0] += " Nothing was."
        hidden = len(same or jobs) - _SHOWN
        return "\n".join([*said, f"  … and {hidden} more"] if hidden > 0 else said)


_SHOWN = 10


def _parameters(app: Windlass, task: str) -> inspect.Signature:
    function = getattr(app.tasks.get(task), "function", None)
    return _ANYTHING if function is None else inspect.signature(function)


def _bound(app: Windlass, job: NewJob) -> inspect.BoundArguments:
    signature = app.signature_of(job.task) or Signature.untyped(job.task)
    args, kwargs = signature.decode(job.payload)
    return _parameters(app, job.task).bind(*args, **kwargs)


def _elsewhere(*args: Any, **kwargs: Any) -> Any: ...


_ANYTHING = inspect.signature(_elsewhere)
"""For a task that lives elsewhere."""


def _options(app: Windlass, task: Sender[..., Any]) -> dict[str, Any]:
    """What `using` has said, and the task itself has not."""
    plain = app.tasks.get(task.name)
    if plain is None:
        known = ", ".join(sorted(app.tasks)) or "none"
        raise InvalidOption(f'task "{task.name}" is not one of this app; its tasks: {known}')
    asked, usual = task.pattern, plain.pattern
    return {
        name: getattr(asked, name)
        for name in NewJob.__struct_fields__
        if name not in ("id", "payload") and getattr(asked, name) != getattr(usual, name)
    }


_DURATIONS = ("delay", "expires", "window")


def _told(name: str, value: Any) -> str:
    if name in _DURATIONS and isinstance(value, int):
        length: Micros = value
        return f"{seconds(length)} s"
    return str(value) if isinstance(value, str) else repr(value)
