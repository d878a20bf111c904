"""Types beside plain ones: models of Pydantic's, attrs, paths, named types, constraints."""

import contextlib
import dataclasses
import datetime as dt
import decimal
import json
import pathlib
import subprocess
import sys
from typing import Annotated, Any, NotRequired, TypedDict

import annotated_types as at
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_types import (
    LOGIN,
    ORDER,
    Box,
    Card,
    Colour,
    Line,
    Login,
    Loose,
    Mail,
    Money,
    Numbers,
    Order,
    Parcel,
    Point,
    Renamed,
    Row,
    Strict,
    Transfer,
    Wrapped,
    forms,
    taking,
    task_with,
)
from pydantic import BaseModel, Field, SecretBytes, SecretStr

from windlass import Secret
from windlass.core.form import Form
from windlass.core.secret import MASK
from windlass.core.signature import Signature
from windlass.errors import InvalidOption, InvalidPayload

VALUES: list[tuple[Any, Any]] = [
    (Order, ORDER),
    (list[Order], [ORDER, Order(number=2)]),
    (dict[str, Order], {"a": ORDER}),
    (Order | None, ORDER),
    (Order | None, None),
    (tuple[Order, int], (ORDER, 1)),
    (Parcel, Parcel(ORDER, pathlib.Path("/srv/a"))),
    (list[Parcel], [Parcel(ORDER)]),
    (Mail, {"order": ORDER, "copy": [ORDER]}),
    (Row, Row(ORDER, 1)),
    (Wrapped, Wrapped(ORDER)),
    (Strict, Strict(at=dt.datetime(2030, 1, 31, tzinfo=dt.UTC), names=("a",))),
    (Renamed, Renamed(unitPrice=3)),
    (Box[Order], Box[Order](value=ORDER)),
    (Numbers, Numbers([1, 2])),
    (Loose, Loose(x=1.5, other=[1])),  # type: ignore[call-arg]
    (Login, Login(user="eve", pin=SecretStr("**********"))),
    (list[Login], [Login(user="x", pin=SecretStr(""), more=[LOGIN])]),
    (SecretStr, SecretStr("hunter2!")),
    (SecretStr | None, SecretStr("hunter2!")),
    (Card | Transfer, Card(number=SecretStr("4242"))),
    (Card | Transfer | None, None),
    (list[Card | Transfer], [Transfer(iban="x"), Card(number=SecretStr("4242"))]),
    (Annotated[Card | Transfer, Field(discriminator="kind")], Transfer(iban="x")),
    (Card | str, "text"),
    (pydantic.AnyUrl, pydantic.AnyUrl("https://a.example/x")),
    (pathlib.Path, pathlib.Path("/srv/ä")),
    (pathlib.PurePosixPath | None, pathlib.PurePosixPath("a/b")),
    (list[pathlib.Path], [pathlib.Path("a"), pathlib.Path("b")]),
    (decimal.Decimal, decimal.Decimal("1.10")),
    (Colour, Colour.RED),
    (Point, Point(1)),
    (list[Point], [Point(1, "a")]),
    (Annotated[int, at.Ge(1)], 1),
    (Annotated[int, Field(ge=1)], 1),
    (Annotated[int, msgspec.Meta(ge=1)], 1),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES)
def test_it_arrives_as_it_was_and_so_does_the_result(annotation: Any, value: Any) -> None:
    signature = taking(annotation)
    (args, kwargs) = signature.decode(signature.encode((value,), {}))
    assert (args, kwargs) == ((), {"it": value})
    document = signature.encode_result(value)
    assert document is not None
    assert signature.decode_result(document) == value
    json.dumps(signature.schema())


def test_an_argument_over_http_is_read_as_pydantic_reads_it() -> None:
    payload = taking(Order).encode_json(b'{"it": {"number": "7", "lines": [{"sku": "a", "price": 2}]}}')
    _, kwargs = taking(Order).decode(payload)
    assert kwargs == {"it": Order(number=7, lines=[Line(sku="a", price=decimal.Decimal(2))])}


def test_a_named_type_arrives() -> None:
    signature = taking(dict[str, Money | None])
    _, kwargs = signature.decode(signature.encode(({"a": Money(5, "EUR"), "b": None},), {}))
    found: Any = kwargs["it"]
    assert (found["a"].cents, found["a"].currency, found["b"]) == (5, "EUR", None)


NAIVE = dt.datetime(2030, 1, 1)  # noqa: DTZ001 - that is what is refused

REFUSED: list[tuple[Any, Any, str]] = [
    (Order, {"number": 1}, 'argument "it": expected Order, got dict'),
    (Order, 7, 'argument "it": input should be an object'),
    (Order, Order.model_construct(number="x"), 'argument "it"["number"]: input should be a valid integer'),
    (
        list[Order],
        [Order(number=1), Order.model_construct(number=1, lines=[Line.model_construct(sku="a", price=-1)])],
        'argument "it"[1]["lines"][0]["price"]: input should be greater than 0',
    ),
    (
        dict[str, Order],
        {"fine": ORDER, "odd": Order.model_construct(number=None)},
        'argument "it"["odd"]["number"]: input should be a valid integer',
    ),
    (Parcel, Parcel(Order.model_construct(number=[])), 'argument "it"["order"]["number"]: '),
    (Box[Line], Box[Line](value=Line.model_construct(sku="a", price=0)), 'argument "it"["value"]["price"]: '),
    (Loose, Loose(x=float("nan")), 'argument "it"'),
    (Loose, Loose(y="\0"), 'argument "it"["y"]: NUL'),  # type: ignore[call-arg]
    (pathlib.Path, "/srv/a", 'argument "it": expected Path, got str'),
    (pathlib.Path, pathlib.Path("a\0b"), 'argument "it": NUL'),
    (pathlib.Path, pathlib.Path("a\udc80"), 'argument "it": a lone surrogate'),
    (Any, ORDER, 'argument "it": expected dict, got Order; convert it, or annotate it as Order'),
    (Money, Money(1, "E"), "argument \"it\": ValueError: 'no currency: E'"),
    (list[Money], [Money(1, "EUR"), Money(1, "")], "argument \"it\"[1]: ValueError: 'no currency: '"),
    (Money, (1, "EUR"), 'argument "it": expected Money, got tuple'),
    (Point, {"x": 1}, 'argument "it": expected Point, got dict'),
    (Colour, "red", 'argument "it": expected Colour, got str'),
    (Annotated[int, at.Ge(1)], 0, 'argument "it": expected a value >= 1'),
    (Annotated[int, at.Interval(gt=1, le=3)], 4, 'argument "it": expected a value <= 3'),
    (Annotated[int, at.MultipleOf(2)], 3, 'argument "it": expected a multiple of 2'),
    (Annotated[str, at.Len(1, 3)], "abcd", 'argument "it": expected a length <= 3'),
    (Annotated[str, at.Len(1, 3)], "", 'argument "it": expected a length >= 1'),
    (Annotated[str, at.Predicate(str.isupper)], "a", 'argument "it": refused by str.isupper'),
    (Annotated[str, at.Predicate(int)], "a", 'argument "it": ValueError: '),
    (Annotated[dt.datetime, at.Timezone(...)], NAIVE, 'argument "it": expected a datetime'),
    (Annotated[decimal.Decimal, at.Gt(0)], decimal.Decimal(0), 'argument "it": expected a value > 0'),
    (
        dict[str, list[Annotated[int, at.Ge(1)]]],
        {"a": [1, 0]},
        'argument "it"["a"][1]: expected a value >= 1',
    ),
    (Annotated[int, at.Ge(1)] | None, 0, 'argument "it": expected a value >= 1'),
    (tuple[int, Annotated[str, at.Len(1)]], (0, ""), 'argument "it"[1]: expected a length >= 1'),
    (Annotated[int, Field(ge=1)], 0, 'argument "it": input should be greater than or equal to 1'),
    (list[Annotated[str, Field(pattern="^a")]], ["a", "b"], 'argument "it"[1]: string should match pattern'),
    (Annotated[int, msgspec.Meta(ge=1)], 0, 'argument "it": expected int >= 1'),
    (Annotated[str, pydantic.AfterValidator(str.upper)], "a", "its validator would change it"),
    (Card | Transfer, Card.model_construct(number=1), 'argument "it"'),
]


@pytest.mark.parametrize(("annotation", "value", "message"), REFUSED)
def test_what_does_not_fit_is_refused_with_its_place(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        taking(annotation).encode((value,), {})
    assert message in str(refused.value)
    assert refused.value.__cause__ is None


@dataclasses.dataclass
class Item:
    price: Annotated[decimal.Decimal, at.Gt(0)]
    parts: "list[Item]" = dataclasses.field(default_factory=list)
    tag: Annotated[str, Field(max_length=2)] | None = None


class Entry(TypedDict):
    item: NotRequired[Item]


def test_constraints_hold_in_the_fields_of_classes() -> None:
    good = Item(decimal.Decimal(1), [Item(decimal.Decimal(2), tag="ab")])
    assert taking(Item).decode(taking(Item).encode((good,), {}))[1] == {"it": good}
    taking(Entry).encode(({},), {})
    bad = Item(decimal.Decimal(1), [Item(decimal.Decimal(0))])
    with pytest.raises(
        InvalidPayload, match=r'argument "it"\["parts"\]\[0\]\["price"\]: expected a value > 0'
    ):
        taking(Item).encode((bad,), {})
    with pytest.raises(
        InvalidPayload, match=r'argument "it"\["item"\]\["tag"\]: string should have at most 2'
    ):
        taking(Entry).encode(({"item": Item(decimal.Decimal(1), tag="abc")},), {})
    with pytest.raises(InvalidPayload, match=r'"it"\["item"\]\["price"\]: expected a value > 0'):
        taking(Entry).encode_json(b'{"it": {"item": {"price": "0"}}}')


def test_a_model_that_has_changed_is_refused_when_it_is_read_and_the_place_is_named() -> None:
    payload = taking(Renamed).encode((Renamed(unitPrice=3),), {})

    class Renewed(BaseModel):
        total: int

    with pytest.raises(InvalidPayload, match=r'argument "it"\["total"\]: field required'):
        taking(Renewed).decode(payload)


# --- secrets ------------------------------------------------------------------------------------------------


def test_secrets_of_models_are_kept_for_the_task_and_taken_out_of_texts() -> None:
    signature = taking(Login)
    payload = signature.encode((LOGIN,), {})
    found: Any = signature.decode(payload)[1]["it"]
    assert found.pin.get_secret_value() == "hunter2!"
    assert found.keys["a"].get_secret_value() == b"k3y-of-ada"
    assert signature.secrets_in(payload) >= {"hunter2!", "k3y-of-ada"}
    stored = json.loads(payload)["k"]["it"]
    assert signature.masked([], {"it": stored})[1] == {
        "it": {"user": "ada", "pin": MASK, "keys": MASK, "more": []}
    }
    result = signature.encode_result(LOGIN)
    assert result is not None
    assert signature.masked_result(json.loads(result)["r"])["pin"] == MASK


def test_a_refusal_does_not_quote_a_secret() -> None:
    odd = Login.model_construct(user=1, pin=SecretStr("hunter2!"))
    with pytest.raises(InvalidPayload) as refused:
        taking(Login).encode((odd,), {})
    assert "hunter2!" not in repr(refused.value)
    with pytest.raises(InvalidPayload) as refused:
        taking(Login).encode_json(b'{"it": {"pin": "hunter2!"}}')
    assert "hunter2!" not in repr(refused.value)
    assert 'argument "it"["user"]: field required' in str(refused.value)


def test_marked_and_renamed_fields_of_models_are_secret() -> None:
    class Keeper(BaseModel):
        note: Annotated[str, Secret] = Field(alias="plainNote")

    signature = taking(Keeper)
    payload = signature.encode((Keeper(plainNote="between us"),), {})
    assert signature.secrets_in(payload) == {"between us"}
    assert signature.masked([], {"it": {"plainNote": "between us"}})[1] == {"it": {"plainNote": MASK}}


def test_a_secret_that_is_no_text_is_refused_by_name() -> None:
    odd = Login(user="a", pin=SecretStr("x"), keys={"a": SecretBytes(b"\xff\xfe")})
    with pytest.raises(InvalidPayload, match=r'argument "it": this Login cannot be written as JSON'):
        taking(Login).encode((odd,), {})


def test_a_field_that_pydantic_leaves_out_is_refused_by_name() -> None:
    class Half(BaseModel):
        kept: int
        dropped: int = Field(default=0, exclude=True)

    with pytest.raises(InvalidPayload, match=r'argument "it"\["dropped"\]: 5 cannot be stored exactly'):
        taking(Half).encode((Half(kept=1, dropped=5),), {})


def test_a_model_that_does_not_read_what_it_writes_is_refused_with_the_alias() -> None:
    class Priced(BaseModel):
        price: int = Field(validation_alias="unitPrice")

    class Either(BaseModel):
        price: int = Field(validation_alias=pydantic.AliasChoices("unitPrice", "cost"))

    class Apart(BaseModel):
        price: int = Field(alias="unitPrice", serialization_alias="cost")

    class Cart(BaseModel):
        lines: list[Priced]

    for kind, writes in ((Priced, "price"), (Either, "price"), (Apart, "cost")):
        with pytest.raises(
            InvalidPayload,
            match=rf'\["unitPrice"\]: the model writes this field as "{writes}" and reads it as "unitPrice"',
        ):
            taking(kind).encode((kind(unitPrice=3),), {})
    with pytest.raises(InvalidPayload, match=r'\["lines"\]\[0\]\["unitPrice"\]: the model writes this field'):
        taking(Cart).encode((Cart(lines=[Priced(unitPrice=3)]),), {})
    with pytest.raises(InvalidPayload, match=r'\["unitPrice"\]: field required'):
        taking(Priced).encode_json(b'{"it": {}}')


def test_a_model_that_also_reads_its_name_arrives() -> None:
    class Priced(BaseModel, populate_by_name=True):
        price: int = Field(gt=0, validation_alias="unitPrice")

    signature = taking(Priced)
    priced = Priced(unitPrice=3)
    assert signature.decode(signature.encode((priced,), {}))[1] == {"it": priced}
    priced.price = -1
    with pytest.raises(InvalidPayload, match=r'\["price"\]: input should be greater than 0'):
        signature.encode((priced,), {})


# --- registration -------------------------------------------------------------------------------------------


class Unknown: ...


@pydantic.dataclasses.dataclass
class Checked:
    x: int = Field(ge=1)


@dataclasses.dataclass
class Outer:
    inner: Checked


def test_a_dataclass_of_pydantics_is_read_by_pydantic() -> None:
    signature = taking(list[Checked] | None)
    assert signature.decode(signature.encode(([Checked(2)],), {}))[1] == {"it": [Checked(2)]}
    with pytest.raises(InvalidPayload, match=r'argument "it"\[0\]\["x"\]: input should be greater'):
        signature.encode_json(b'{"it": [{"x": 0}]}')
    with pytest.raises(InvalidOption, match="Checked is a dataclass of Pydantic's inside of another class"):
        taking(Outer)


def test_what_does_not_arrive_in_a_dataclass_of_pydantics_is_refused() -> None:
    @pydantic.dataclasses.dataclass
    class Raw:
        data: bytes

    @pydantic.dataclasses.dataclass
    class Other:
        price: int = Field(alias="unitPrice")

    for value in (Raw(b"\xff\x00"), Raw(b"hi"), Other(unitPrice=3)):  # type: ignore[call-arg]
        with pytest.raises(InvalidPayload, match='argument "it"'):
            taking(type(value)).encode((value,), {})


def test_what_has_no_form_is_refused_when_it_is_registered() -> None:
    with pytest.raises(InvalidOption, match=r'parameter "it": Unknown cannot be .* app\.type\(\)'):
        taking(Unknown)
    with pytest.raises(InvalidOption, match="Path cannot be the key of a dict"):
        taking(dict[pathlib.Path, int])


def test_a_type_is_named_once_and_only_if_it_needs_a_form() -> None:
    table = forms()
    form = Form(str, str, dict)
    with pytest.raises(InvalidOption, match=r"app\.type was called for Money before"):
        table.add(Money, form)
    for known in (int, Point, Item, Colour):
        with pytest.raises(InvalidOption, match="has a JSON form already"):
            table.add(known, form)
    with pytest.raises(InvalidOption, match="takes a class"):
        table.add("Money", form)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="encode must be a function"):
        table.add(Unknown, Form(3, str, dict))  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="schema must be a JSON Schema"):
        table.add(Unknown, Form(str, str, lambda: {"is": object()}))


def test_a_class_derived_from_a_named_one_is_written_as_that() -> None:
    class Tip(Money): ...

    table = forms()
    assert table.of(Tip) is None
    assert table.simpler(Tip(5, "EUR")) == [5, "EUR"]
    with pytest.raises(InvalidOption, match="Tip cannot be stored"):
        Signature(task_with(Tip), forms=table)


def test_a_model_without_a_schema_can_be_used() -> None:
    class Odd:
        """Known to Pydantic by a validator only."""

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Odd)

        __hash__ = object.__hash__

        @classmethod
        def __get_pydantic_core_schema__(cls, *_: object) -> Any:
            from pydantic_core import core_schema  # noqa: PLC0415

            return core_schema.no_info_plain_validator_function(
                lambda _: cls(),
                serialization=core_schema.plain_serializer_function_ser_schema(lambda _: "odd"),
            )

    signature = Signature(task_with(Odd))
    assert signature.schema()["properties"]["it"] == {"description": "Odd, as this app writes it"}
    assert signature.decode(signature.encode((Odd(),), {}))[1] == {"it": Odd()}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["number", "lines", "sku", "price", "pin", "kind"]) | st.text(), inner
        )
    ),
    max_leaves=8,
)


@settings(max_examples=300)
@given(st.sampled_from([taking(annotation) for annotation, _ in VALUES]), JSON)
def test_whatever_comes_is_read_or_refused(signature: Signature, value: Any) -> None:
    with contextlib.suppress(InvalidPayload):
        payload = signature.encode_json(msgspec.json.encode({"it": value}))
        (args, kwargs) = signature.decode(payload)
        with contextlib.suppress(InvalidPayload):  # such as a model that Pydantic reads, but does not write
            signature.encode(args, kwargs)


def test_the_schema_has_models_named_types_and_constraints() -> None:
    def task(
        order: Order,
        other: Order | None,
        money: Money,
        path: pathlib.Path,
        count: Annotated[int, at.Interval(ge=1, lt=9)],
        names: Annotated[list[str], at.Len(1, 3)],
        code: Annotated[str, Field(pattern="^a", description="a code")],
    ) -> None: ...

    schema = Signature(task, forms=forms()).schema()
    order = schema["properties"]["order"]
    assert order["properties"]["lines"]["items"] == {"$ref": "#/$defs/Order.Line"}
    assert schema["$defs"]["Order.Line"]["required"] == ["sku", "price"]
    assert schema["properties"]["money"] == {"type": "array"}
    assert schema["properties"]["path"] == {"type": "string", "format": "path"}
    assert schema["properties"]["count"] == {"type": "integer", "minimum": 1, "exclusiveMaximum": 9}
    assert schema["properties"]["names"]["minItems"] == 1
    assert schema["properties"]["code"]["pattern"] == "^a"
    for reference in _references(schema):
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        here = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return here + [each for part in node.values() for each in _references(part)]
    return [each for part in node for each in _references(part)] if isinstance(node, list) else []


def test_two_models_of_one_name_keep_their_definitions() -> None:
    def other() -> Any:
        class Line(BaseModel):
            text: str

        class Order(BaseModel):
            lines: list[Line]

        return Order

    def task(first, second): ...

    task.__annotations__ = {"first": Order, "second": list[other()]}
    schema = Signature(task).schema()
    found = [each for name, each in schema["$defs"].items() if name.endswith(".Line")]
    assert sorted(list(each["properties"]) for each in found) == [["sku", "price", "count"], ["text"]]


def test_nothing_imports_pydantic_or_attrs() -> None:
    code = (
        "import sys, dataclasses, windlass, windlass.testing, windlass.cli\n"
        "from pathlib import Path\n"
        "app = windlass.Windlass('memory://')\n"
        "@app.task\ndef f(a: int, b: Path, c: list[str]) -> None: ...\n"
        "f.call(1, Path('x'), ['y'])\n"
        "print(sorted({'pydantic', 'attrs', 'attr', 'annotated_types'} & set(sys.modules)))"
    )
    known = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert known.stdout.strip() == "[]"
