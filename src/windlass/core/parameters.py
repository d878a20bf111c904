"""The parameters of a task: which arguments a call may have, and how they are arranged."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from windlass.core.annotation import Shape, shape_of
from windlass.core.fault import quoted, text_reason
from windlass.core.forms import Forms
from windlass.core.json_schema import json_schemas
from windlass.core.secret import NAMES, is_marked, is_secret_name
from windlass.core.spelling import hint
from windlass.errors import InvalidPayload

_T = TypeVar("_T")

Place: TypeAlias = int | str
"""An argument in a payload: its position in "a", or its name in "k"."""


class Slot(NamedTuple):
    """One parameter."""

    name: str
    kind: inspect._ParameterKind  # pyright: ignore[reportPrivateUsage]
    shape: Shape
    required: bool
    default: object
    """`inspect.Parameter.empty`: it has none."""


class Parameters:
    """What a function can be called with."""

    def __init__(
        self, signature: inspect.Signature, *, label: str, forms: Forms, names: frozenset[str] = NAMES
    ) -> None:
        """Take the parameters of a signature whose annotations are resolved; `label` begins every message.
        `names` are those of secrets.
        """
        self.label = label
        self._forms = forms
        self._secret_names = names
        slots = [
            Slot(
                name,
                parameter.kind,
                shape_of(parameter.annotation, label=f'{label}: parameter "{name}"', forms=forms),
                parameter.default is parameter.empty
                and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD),
                parameter.default,
            )
            for name, parameter in signature.parameters.items()
        ]
        self.slots = tuple(slots)
        kinds = inspect.Parameter
        by_kind = {
            kind: [slot for slot in slots if slot.kind is kind] for kind in {slot.kind for slot in slots}
        }
        either = by_kind.get(kinds.POSITIONAL_OR_KEYWORD, [])
        self.first = by_kind.get(kinds.POSITIONAL_ONLY, [])
        self.positional = [*self.first, *either]
        self.named = {slot.name: slot for slot in (*either, *by_kind.get(kinds.KEYWORD_ONLY, []))}
        self.rest = next(iter(by_kind.get(kinds.VAR_POSITIONAL, [])), None)
        self.others = next(iter(by_kind.get(kinds.VAR_KEYWORD, [])), None)
        self.plain = len(self.named) == len(slots)
        """Whether every argument has a name, so that calls are stored by names alone."""
        self._positions = [slot.name for slot in self.positional]
        self._names = frozenset(self.named)
        self._required = frozenset(name for name, slot in self.named.items() if slot.required)

    def bind(self, args: Sequence[_T], kwargs: Mapping[str, _T]) -> tuple[tuple[_T, ...], dict[str, _T]]:
        """Arrange a call as it is stored: by name where Python allows it. Checks names, not values."""
        if self.plain and len(args) <= len(self._positions):
            named = dict(zip(self._positions, args))  # noqa: B905 - strict= costs 0.25 µs
            named.update(kwargs)
            unique = len(named) == len(args) + len(kwargs)
            if unique and self._required.issubset(named) and self._names.issuperset(named):
                return (), named
        self._check(len(args), kwargs)
        if len(args) > len(self._positions):
            return tuple(args), dict(kwargs)
        first = len(self.first)
        return tuple(args[:first]), {
            **dict(zip(self._positions[first:], args[first:], strict=False)),
            **kwargs,
        }

    def split(self, named: Mapping[str, _T]) -> tuple[list[_T], dict[str, _T]]:
        """Make a call of arguments that all have names, also those that Python takes by position only."""
        given = [slot.name for slot in self.first if slot.name in named]
        if given != [slot.name for slot in self.first[: len(given)]]:
            raise InvalidPayload(f"{self.label}: argument {quoted(given[-1])} needs those before it")
        return [named[name] for name in given], {name: named[name] for name in named if name not in given}

    def by_name(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The arguments of a call that `bind` has let pass by the names of their parameters. What `*args` and
        `**kwargs` take are a list and a dict; they are there if they took anything.
        """
        named: dict[str, object] = dict(zip(self._positions, args, strict=False))
        if self.rest is not None and len(args) > len(self._positions):
            named[self.rest.name] = list(args[len(self._positions) :])
        others = {name: value for name, value in kwargs.items() if name not in self.named}
        named.update((name, value) for name, value in kwargs.items() if name in self.named)
        if self.others is not None and others:
            named[self.others.name] = others
        return named

    def shape(self, place: Place) -> Shape:
        """The shape of an argument that `bind` has let pass."""
        return cast("Slot", self.slot(place)).shape

    def slot(self, place: Place) -> Slot | None:
        """The parameter of an argument; None: there is none for it."""
        if isinstance(place, str):
            return self.named.get(place, self.others)
        return self.positional[place] if place < len(self.positional) else self.rest

    def is_secret(self, place: Place) -> bool:
        """Whether an argument that `bind` has let pass is a secret, by its name or its annotation."""
        if is_marked(self.shape(place).type):
            return True
        if isinstance(place, int):
            place = (
                self.positional[place].name if place < len(self.positional) else cast("Slot", self.rest).name
            )
        return is_secret_name(place, self._secret_names)

    def described(self, place: Place) -> str:
        """The name of an argument in messages. `bind` has accepted it before."""
        if isinstance(place, str):
            return f"argument {quoted(place)}"
        if place < len(self.positional):
            return f'argument "{self.positional[place].name}"'
        return f'argument "{cast("Slot", self.rest).name}"[{place - len(self.positional)}]'

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments by name: of all but `*args`."""
        slots = [*self.first, *self.named.values()]
        others = [self.others] if self.others else []
        schemas, definitions = json_schemas([slot.shape.read_as for slot in (*slots, *others)], self._forms)
        return {
            "type": "object",
            "properties": {slot.name: schema for slot, schema in zip(slots, schemas, strict=False)},
            "required": [slot.name for slot in slots if slot.required],
            "additionalProperties": schemas[-1] if others else False,
            **({"$defs": definitions} if definitions else {}),
        }

    def _check(self, given: int, kwargs: Mapping[str, object]) -> None:
        """Refuse a call that Python would refuse, naming the argument."""
        if given > len(self._positions) and self.rest is None:
            most = len(self._positions)
            several = "argument" if most == 1 else "arguments"
            raise InvalidPayload(f"{self.label}: takes at most {most} {several} by position, got {given}")
        for name in self._positions[len(self.first) : given]:
            if name in kwargs:
                raise InvalidPayload(
                    f"{self.label}: argument {quoted(name)} is given by position and by name"
                )
        for name in kwargs:
            if name not in self.named:
                self._check_other(name)
        missing = [slot for slot in self.positional[given:] if slot.name not in self.named]
        missing += [
            slot for slot in self.named.values() if slot.name not in (*kwargs, *self._positions[:given])
        ]
        for slot in missing:
            if slot.required:
                raise InvalidPayload(f'{self.label}: argument "{slot.name}" is missing')

    def _check_other(self, name: str) -> None:
        """Refuse a name that no parameter has, or that `**kwargs` cannot keep."""
        if self.others is not None:
            if reason := text_reason(name):
                raise InvalidPayload(f"{self.label}: the name of argument {quoted(name)}: {reason}")
            return
        if name in self._positions:
            raise InvalidPayload(f"{self.label}: argument {quoted(name)} can be given by position only")
        those = hint(name, self.named, "its arguments are")
        raise InvalidPayload(f"{self.label}: unexpected argument {quoted(name)}; {those}")
