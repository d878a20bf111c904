"""Personal data in texts: e-mail addresses, phone numbers and card numbers, found by how they look. Pure.

They are found by patterns, which is never exact: a number may look like one and be none, and a name does not
look like anything. So no pattern is used unless the app asks for it, and a task says by name which of its
arguments are private (`private=("email",)`).
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, cast

from windlass.errors import InvalidOption

_EMAIL = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]+?(?:@|%40)[\w-]+(?:\.[\w-]+)+")
_CARD = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])")
_PHONE = re.compile(
    r"(?<![\w.+/-])(?:(?:\+|00)[1-9][\d ().\-/]{5,20}\d|\(0?\d{2,4}\) ?\d[\d \-/]{4,12}\d"
    r"|0[1-9]\d[\d \-/]{5,14}\d|\d{3}[ .-]\d{3}[ .-]\d{4})(?![\w-])"
)
_DIGITS = range(7, 16)
"""How many digits a phone number has."""
_DEEPEST = 64


def _passes_luhn(number: str) -> bool:
    """Whether the last digit of a number is the one that the others ask for, as on every card."""
    digits = [int(sign) for sign in number if sign.isdecimal()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_phone(text: str) -> bool:
    return sum(sign.isdecimal() for sign in text) in _DIGITS


PATTERNS: Final[Mapping[str, tuple[re.Pattern[str], Callable[[str], bool]]]] = {
    "email": (_EMAIL, bool),
    "card": (_CARD, _passes_luhn),
    "phone": (_PHONE, _is_phone),
}
"""In the order in which they are looked for: a card number may look like a phone number, too."""


def check_patterns(names: Collection[str]) -> tuple[str, ...]:
    """The names of patterns, in their order; `InvalidOption` names one that there is not."""
    for name in names:
        if name not in PATTERNS:
            raise InvalidOption(f'there is no pattern "{name}"; patterns: {", ".join(PATTERNS)}')
    return tuple(name for name in PATTERNS if name in names)


def without_private(text: str, patterns: Sequence[str]) -> str:
    """A text with what looks like these replaced by what it is: `[email]`."""
    for name in patterns:
        pattern, holds = PATTERNS[name]
        mask = f"[{name}]"
        text = pattern.sub(lambda found: mask if holds(found.group()) else found.group(), text)  # noqa: B023
    return text


def masked_private(value: Any, patterns: Sequence[str]) -> Any:
    """A JSON-like value in which texts, numbers and keys are without them, for showing."""
    return each_text(value, lambda text: without_private(text, patterns)) if patterns else value


def each_text(value: Any, clean: Callable[[str], str]) -> Any:
    """A JSON-like value whose texts, numbers and keys are as `clean` makes them, for showing."""
    return _cleaned(value, clean, 0)


def _cleaned(value: Any, clean: Callable[[str], str], depth: int) -> Any:
    if depth > _DEEPEST or value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int):
        text = clean(str(value))
        return value if text == str(value) else text
    if isinstance(value, Mapping):
        inside = cast("Mapping[Any, Any]", value).items()
        return {_cleaned(key, clean, depth + 1): _cleaned(each, clean, depth + 1) for key, each in inside}
    if isinstance(value, list | tuple):
        return [_cleaned(each, clean, depth + 1) for each in cast("Sequence[Any]", value)]
    return value
