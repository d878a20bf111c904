"""Types that msgspec does not know, and the form of each: Pydantic's, paths of `pathlib`, and those that an
app names with `app.type`.
"""

from collections.abc import Callable
from typing import Any, get_origin

import msgspec
from msgspec import inspect as types

from windlass.core.codec import as_plain
from windlass.core.fault import Fault, Unfit
from windlass.core.form import Form, path_form
from windlass.core.models import adapter_form, model_form
from windlass.core.option import shown
from windlass.errors import InvalidOption


class StandIn(type):
    """A class that stands for an annotation which msgspec would refuse, or read otherwise than Pydantic."""

    form: Form

    def __instancecheck__(cls, _: object) -> bool:
        """Whatever was read for it is right."""
        return True


def stand_in(annotation: Any) -> Any:
    """What stands for an annotation that Pydantic reads as a whole."""
    kind = StandIn(getattr(annotation, "__name__", "Union"), (), {})
    kind.form = adapter_form(annotation)
    return kind


class Forms:
    """The types of an app that msgspec does not know."""

    def __init__(self) -> None:
        self._named: dict[type, Form] = {}
        """Those that the app has named."""
        self._found: dict[Any, Form | None] = {}
        """Annotated types that were recognised, and those that are not known."""
        self._of_values: dict[type, Form | None] = {}
        """The classes of values that were looked at."""
        self.encode = msgspec.json.Encoder(enc_hook=self._written).encode
        """Any value as JSON; exceptions of several kinds if it cannot be."""
        self.encode_sorted = msgspec.json.Encoder(enc_hook=self._written, order="sorted").encode
        """The same, with the parts of objects and sets in one order: equal values are equal bytes."""

    def add(self, kind: type, form: Form) -> None:
        """Take a type of the app. `InvalidOption`: it needs none, or has one."""
        if not isinstance(kind, type):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"app.type takes a class, as in app.type(Money, ...), not {shown(kind)}")
        if kind in self._named:
            raise InvalidOption(f"app.type was called for {kind.__qualname__} before; once is enough")
        if not _needs_a_form(kind):
            raise InvalidOption(
                f"{kind.__qualname__} has a JSON form already and cannot be given another; annotate with it"
            )
        for name, function in (("encode", form.encode), ("decode", form.decode)):
            if not callable(function):  # pyright: ignore[reportUnnecessaryComparison]
                raise InvalidOption(f"{name} must be a function of one argument, not {shown(function)}")
        try:
            msgspec.json.encode(form.schema())
        except Exception as error:
            raise InvalidOption(f"schema must be a JSON Schema, a dict of plain values: {error}") from error
        self._named[kind] = form
        self._found.clear()
        self._of_values.clear()

    def of(self, kind: Any) -> Form | None:
        """The form of an annotated type; None: it has none here."""
        if isinstance(kind, StandIn):
            return kind.form
        kind = get_origin(kind) or kind
        return self._named.get(kind) or self._recognised(kind)

    def of_value(self, value: object) -> Form | None:
        """The form of a value. One of a class that is derived from a named one is written as that."""
        kind = type(value)
        if kind not in self._of_values:
            named = next((self._named[each] for each in kind.__mro__ if each in self._named), None)
            self._of_values[kind] = named or self._recognised(kind)
        return self._of_values[kind]

    def simpler(self, value: object) -> object:
        """A value in its form: what msgspec is given to write. Any other value as it is."""
        form = self.of_value(value)
        return value if form is None else form.encode(value)

    def decoder(self, annotation: Any) -> Callable[[bytes], Any]:
        """The decoder of an annotation. `object` stands for any JSON value."""
        return msgspec.json.Decoder(annotation, dec_hook=self._read).decode

    def schema(self, kind: Any) -> dict[str, Any]:
        """The JSON Schema of a type; `object` is any JSON value."""
        form = self.of(kind)
        if form is None:
            return {"description": "any JSON value"}
        try:
            return dict(form.schema())
        except Exception:  # noqa: BLE001 - Pydantic can read types that JSON Schema has no words for
            return {"description": f"{kind.__name__}, as this app writes it"}

    def _recognised(self, kind: Any) -> Form | None:
        if kind in self._found:
            return self._found[kind]
        form = self._found[kind] = path_form(kind) or model_form(kind)
        return form

    def _written(self, value: object) -> object:
        form = self.of_value(value)
        return as_plain(value) if form is None else form.encode(value)

    def _read(self, kind: Any, value: object) -> object:
        form = self.of(kind)
        if form is None:
            return value
        try:
            return form.decode(value)
        except Unfit:
            raise
        except Exception as error:  # noqa: BLE001 - users' code; msgspec adds the place to an `Unfit`
            raise Unfit(Fault((), f"{type(error).__name__}: {shown(str(error))}")) from None


def _needs_a_form(kind: type) -> bool:
    try:
        return isinstance(types.type_info(kind), types.CustomType)
    except TypeError:  # an enumeration of values that JSON has not
        return False
