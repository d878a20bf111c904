"""Types that tasks of the tests are annotated with."""

import dataclasses
import enum
from typing import NamedTuple, TypedDict

import msgspec


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    GOOD = "good"


@dataclasses.dataclass
class Line:
    sku: str
    price: float
    count: int = 1


@dataclasses.dataclass
class Discounted(Line):
    rebate: float = 0.0


@dataclasses.dataclass(eq=False)
class Loose:
    text: str
    lines: list[Line] = dataclasses.field(default_factory=list)


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Tree(msgspec.Struct):
    value: int
    children: list["Tree"] = []


class Pair(NamedTuple):
    left: int
    right: str


class Address(TypedDict, total=False):
    street: str
    number: int


class Plain:
    """Has no JSON form."""
