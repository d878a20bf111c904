"""Models, classes of other packages and a class of an app, which tasks of the tests are annotated with."""

import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import pathlib
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretBytes, SecretStr

from windlass.core.form import Form
from windlass.core.forms import Forms
from windlass.core.signature import Signature

T = TypeVar("T")


class Line(BaseModel):
    sku: str
    price: Annotated[decimal.Decimal, Field(gt=0)]
    count: int = Field(default=1, ge=1)


class Order(BaseModel):
    number: int
    lines: list[Line] = []
    at: dt.datetime | None = None
    host: ipaddress.IPv4Address | None = None
    note: bytes = b""
    ids: set[uuid.UUID] = set()
    by_day: dict[dt.date, int] = {}

    @pydantic.computed_field
    @property
    def total(self) -> decimal.Decimal:
        return sum((line.price for line in self.lines), decimal.Decimal())


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    at: dt.datetime
    names: tuple[str, ...]


class Renamed(BaseModel):
    unit_price: int = Field(alias="unitPrice")


class Login(BaseModel):
    user: str
    pin: SecretStr
    keys: dict[str, SecretBytes] = {}
    more: list["Login"] = []


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: SecretStr


class Transfer(BaseModel):
    kind: Literal["transfer"] = "transfer"
    iban: str


class Box(BaseModel, Generic[T]):
    value: T


class Numbers(RootModel[list[int]]): ...


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: float = 0.0


@dataclasses.dataclass
class Parcel:
    order: Order
    to: pathlib.Path | None = None


class Mail(TypedDict):
    order: Order
    copy: NotRequired[list[Order]]


class Row(NamedTuple):
    order: Order
    n: int


class Wrapped(msgspec.Struct):
    order: Order


@attrs.define
class Point:
    x: int = attrs.field(validator=attrs.validators.ge(0))
    label: str = "none"


class Colour(enum.Enum):
    RED = "red"


class Money:
    """A class of an app, without a way to compare."""

    def __init__(self, cents: int, currency: str) -> None:
        self.cents, self.currency = cents, currency


def read_money(value: Any) -> Money:
    cents, currency = value
    if len(currency) != 3:
        raise ValueError(f"no currency: {currency}")
    return Money(cents, currency)


def forms() -> Forms:
    made = Forms()
    schema = {"type": "array"}
    made.add(Money, Form(lambda money: [money.cents, money.currency], read_money, lambda: schema))
    return made


def task_with(annotation: Any) -> Any:
    def task(it): ...

    task.__annotations__ = {"it": annotation, "return": annotation}
    return task


def taking(annotation: Any) -> Signature:
    """A task with one argument of this type, which returns one."""
    return Signature(task_with(annotation), forms=forms())


ORDER = Order(
    number=1,
    lines=[Line(sku="a", price=decimal.Decimal("1.50"))],
    at=dt.datetime(2030, 1, 31, 8, tzinfo=dt.UTC),
    host=ipaddress.IPv4Address("10.0.0.1"),
    note=b"hi",
    ids={uuid.UUID(int=1)},
    by_day={dt.date(2030, 1, 31): 2},
)
LOGIN = Login(user="ada", pin=SecretStr("hunter2!"), keys={"a": SecretBytes(b"k3y-of-ada")})
