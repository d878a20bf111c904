"""Retry: whether a failed job runs again, and after how long.

Attempt n (from 1) has just failed; `delay(n)` is the wait before attempt n + 1:

    exponential   base * factor ** (n - 1)
    linear        base * n
    fixed         base
    a function    what it returns for n, in seconds or as text such as "5m"

That wait is cut at `cap`, then spread by `jitter`, so that jobs which failed together do not come back
together (fault 30). With d the wait after the cut:

    full          from 0 to d
    equal         from d/2 to d
    additive      from d to d + base; near the cap this window slides down whole, to end at the cap. Cutting
                  the sum instead would make all jobs that have reached the cap return at one moment
    none          d

No delay is ever longer than `cap`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

import msgspec

from windlass.core.duration import Duration, micros
from windlass.core.option import choice, shown, whole
from windlass.core.state import Reason
from windlass.core.units import SECOND, Micros
from windlass.errors import InvalidOption

MOST_ATTEMPTS = 10_000
CRASH_CAP: Micros = 60 * SECOND

Backoff: TypeAlias = Literal["exponential", "linear", "fixed"] | Callable[[int], Duration]
Jitter: TypeAlias = Literal["full", "equal", "additive", "none"]
Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
"""A class or a tuple of classes, as `except` takes them."""

_BACKOFFS = ("exponential", "linear", "fixed")
_JITTERS = ("full", "equal", "additive", "none")


class Again(msgspec.Struct, frozen=True):
    """Run it again after `delay`."""

    delay: Micros


class Stop(msgspec.Struct, frozen=True):
    """Do not run it again: a dead letter, with its reason and what led to it."""

    reason: Reason
    detail: str


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often, when, and after which errors a job is tried again. `max_attempts=1` means never.

    `base` and `cap` are seconds, text such as "5m", or a timedelta. An error ends the job at once if its
    class is in `give_up_on`, or is not in `retry_on`. If it is in both, `give_up_on` wins.
    """

    max_attempts: int = 5
    base: Duration = 30
    cap: Duration = 3600
    backoff: Backoff = "exponential"
    factor: float = 2
    jitter: Jitter = "full"
    retry_on: Errors = (Exception,)
    give_up_on: Errors = ()

    # In microseconds. The fields above stay as written, so that `dataclasses.replace` reads them right again.
    _base: Micros = field(init=False, repr=False, compare=False)
    _cap: Micros = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole(self.max_attempts, name="max_attempts", least=1, most=MOST_ATTEMPTS)
        base, cap = micros(self.base, name="base"), micros(self.cap, name="cap")
        if cap < base:
            raise InvalidOption(
                f"cap={shown(self.cap)} is shorter than base={shown(self.base)}, and no delay may be longer "
                "than cap: raise cap or lower base"
            )
        _check_backoff(self.backoff)
        _check_factor(self.factor)
        choice(self.jitter, name="jitter", among=_JITTERS)
        _check_classes(self.retry_on, name="retry_on")
        _check_classes(self.give_up_on, name="give_up_on")
        object.__setattr__(self, "_base", base)
        object.__setattr__(self, "_cap", cap)

    def decide(
        self, attempt: int, error: BaseException, *, draw: float, max_attempts: int | None = None
    ) -> Again | Stop:
        """Decide what happens after an attempt that ended with `error`. `max_attempts` is the setting of the
        job.
        """
        kind = type(error).__name__
        if isinstance(error, self.give_up_on):
            return Stop(Reason.GAVE_UP, f"{kind} is in give_up_on")
        if not isinstance(error, self.retry_on):
            return Stop(Reason.GAVE_UP, f"{kind} is not in retry_on")
        most = self.max_attempts if max_attempts is None else max_attempts
        if attempt >= most:
            return Stop(Reason.EXHAUSTED, f"attempt {attempt} of {most}")
        return Again(self.delay(attempt, draw=draw))

    def gives_up(self, error: BaseException) -> bool:
        """True if an error of this class ends the job even if it has attempts left."""
        return isinstance(error, self.give_up_on) or not isinstance(error, self.retry_on)

    def delay(self, attempt: int, *, draw: float) -> Micros:
        """Return the wait after attempt `attempt` failed; `draw` is a random number from [0, 1)."""
        if attempt < 1:
            raise InvalidOption(f"attempts are counted from 1, got {attempt}")
        if not 0 <= draw < 1:
            raise InvalidOption(f"draw must be in [0, 1), got {draw}")
        wait = min(self._wait(attempt), self._cap)
        if self.jitter == "full":
            return int(wait * draw)
        if self.jitter == "equal":
            return wait // 2 + int((wait - wait // 2) * draw)
        if self.jitter == "additive":
            return min(wait, self._cap - self._base) + int(self._base * draw)
        return wait

    def _wait(self, attempt: int) -> Micros:
        """The wait before cap and jitter."""
        match self.backoff:
            case "exponential":
                return self._grown(attempt - 1)
            case "linear":
                return self._base * attempt
            case "fixed":
                return self._base
            case custom:
                return _asked(custom, attempt)

    def _grown(self, times: int) -> Micros:
        """The base grown by the factor, or the cap where a float would overflow."""
        if not self._base:
            return 0
        try:
            return int(min(self._base * float(self.factor) ** times, self._cap))
        except OverflowError:
            return self._cap


def crash_delay(crashes: int) -> Micros:
    """The wait after a job's nth crash: none after the first, which may be another's fault, then from 1 s."""
    if crashes <= 1:
        return 0
    return min(CRASH_CAP, SECOND << min(crashes - 2, 6))


def _asked(custom: Callable[[int], Duration], attempt: int) -> Micros:
    call = f"backoff {_name(custom)}({attempt})"
    try:
        answer = custom(attempt)
    except Exception as error:
        raise InvalidOption(f"{call} raised {type(error).__name__}: {error}") from error
    return micros(answer, name=f"the answer of {call}")


def _name(custom: Callable[[int], Duration]) -> str:
    return getattr(custom, "__qualname__", type(custom).__qualname__)


def _check_backoff(backoff: object) -> None:
    if inspect.iscoroutinefunction(backoff):
        raise InvalidOption(f"backoff must be a plain function, not the coroutine function {shown(backoff)}")
    if not callable(backoff) and backoff not in _BACKOFFS:
        words = ", ".join(f'"{word}"' for word in _BACKOFFS)
        raise InvalidOption(
            f"backoff must be one of {words} or a function of the attempt, not {shown(backoff)}"
        )


def _check_factor(factor: object) -> None:
    # Below 1 the waits would shrink; NaN and infinity lie between no bounds.
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= 1_000:
        raise InvalidOption(f"factor must be a number from 1 to 1,000, not {shown(factor)}")


def _check_classes(given: object, *, name: str) -> None:
    several = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
    strangers = [kind for kind in several if not _is_error_class(kind)]
    if strangers:
        raise InvalidOption(
            f"{name} must be an exception class or a tuple of them, not {shown(strangers[0])}"
        )


def _is_error_class(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)
