"""Tasks that say everything they were told, in every way that a worker might keep."""

import dataclasses
import json
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from windlass import GiveUp, Retry, RetryPolicy, Secret, Windlass, current

WORD = "CANARY"
"""Part of each secret, and of nothing else: not of this code, which tracebacks quote."""


class Login(msgspec.Struct, rename="camel"):
    """By a mark, under another name in JSON."""

    user: str
    pass_phrase: Annotated[str, Secret]


@dataclasses.dataclass
class Card:
    holder: str
    cvv: str
    logins: list[Login]


class Picky(msgspec.Struct):
    """Refuses what it is given, and says what that is."""

    hidden: Annotated[str, Secret]

    def __post_init__(self) -> None:
        raise ValueError(f"{self.hidden} is wrong, says {self.hidden!r}, and {'more ' * 9}{self.hidden}")


class Mute(Exception):
    """Cannot be read."""

    def __str__(self) -> str:
        raise ValueError(f"unreadable: {self.args}")

    @property
    def __cause__(self) -> Any:
        raise ValueError(f"unreadable cause: {self.args}")


def arguments(how: str) -> dict[str, Any]:
    """What a task is called with: secrets of every kind and place, some that need quotes or lines."""
    login = Login(user="ada", pass_phrase=f"{WORD}-of-a-struct 'and' \"both\" \\ quotes é")
    return {
        "how": how,
        "password": f"{WORD}-by-name",
        "marked": f"{WORD}-by-mark\n-----{WORD}-on-a-line-of-its-own-----\n",
        "raw": f"{WORD}-bytes\xff".encode("latin-1"),
        "login": login,
        "card": Card("Ada", f"{WORD}-of-a-dataclass", [login]),
        "more": {"plain": 1, "x-api-key": f"{WORD}/of a dict?", "list": [{"token": [f"{WORD}-in-a-list"]}]},
    }


WAYS = (
    *(
        "error",
        "arguments",
        "chain",
        "context",
        "group",
        "note",
        "gives up",
        "again",
        "again later",
        "leaves",
    ),
    *("long", "mute", "result", "fine"),
)


def says(
    how: str,
    password: str,
    marked: Annotated[str, Secret],
    raw: Annotated[bytes, Secret],
    login: Login,
    card: Card,
    more: dict[str, Any],
) -> int:
    """Say everything, and end as told."""
    given = (password, marked, raw, login, card, more)
    told = f"{password} {marked} {raw!r} {given} {json.dumps(more)} {login.pass_phrase} {[given]!r}"
    current.log(told)
    current.log("." * 1_000 + told)
    current.log(f"{'-' * 1_995}{password}")
    current.progress(0.5, f"working with {told}")
    if how == "result":
        return {"password": marked, "given": told}  # type: ignore[return-value]
    _fail(how, told, given)
    return 1


def _fail(how: str, told: str, given: tuple[Any, ...]) -> None:
    ways: dict[str, Callable[[], BaseException]] = {
        "error": lambda: ValueError(told),
        "arguments": lambda: KeyError(*given),
        "gives up": lambda: GiveUp(told),
        "again": lambda: Retry(told),
        "again later": lambda: Retry(told, after=0.01),
        "leaves": lambda: SystemExit(told),
        "long": lambda: ValueError(f"{'x' * 1_990}{given[0]}{'x' * 20_000}{given[0]}"),
        "mute": lambda: Mute(told),
        "group": lambda: ExceptionGroup(told, [ValueError(told), ExceptionGroup("inner", [OSError(told)])]),
    }
    if how in ways:
        error = ways[how]()
        raise error
    if how in ("chain", "context"):
        try:
            _fail("error", told, given)
        except ValueError as cause:
            if how == "chain":
                raise OSError(told) from cause
            raise OSError(told)  # noqa: B904 - what it came from is kept, too
    if how == "note":
        noted = ValueError("see below")
        noted.add_note(told)
        raise noted


async def asays(
    how: str,
    password: str,
    marked: Annotated[str, Secret],
    raw: Annotated[bytes, Secret],
    login: Login,
    card: Card,
    more: dict[str, Any],
) -> int:
    """The same in the loop."""
    return says(how, password, marked, raw, login, card, more)


def refuses(picky: Picky) -> None:
    """Never begins."""


def build(
    url: str | None = None, *, kinds: tuple[str, ...] = ("loop", "inline", "thread", "process")
) -> Windlass:
    """An app with these tasks."""
    app = Windlass(url, name="canary", beat=0.2, grace=5)
    app.queue("default", emit="all")
    retry = RetryPolicy(max_attempts=2, base=0.01, jitter="none")
    for kind in kinds:
        function: Any = asays if kind == "loop" else says
        app.task(name=f"says_{kind}", run=kind, retry=retry)(function)  # pyright: ignore[reportArgumentType]
    app.task(run="inline")(refuses)
    return app


app = build()
