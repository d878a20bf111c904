"""Options that users pass, checked: a refusal names the option, its value, and what would be right."""

import reprlib

from windlass.errors import InvalidOption

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 100


def shown(value: object) -> str:
    """A value as it may stand in a message: short, and never an error of its own."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # an integer of more than 4,300 digits
        return f"a value of type {type(value).__name__} that is too long to show"


def whole(value: object, *, name: str, least: int, most: int) -> int:
    """Return a whole number within bounds, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidOption(f"{name} must be a whole number from {least:,} to {most:,}, not {shown(value)}")
    return value


def choice(value: object, *, name: str, among: tuple[str, ...]) -> str:
    """Return one of the words, or refuse it."""
    if not isinstance(value, str) or value not in among:
        words = ", ".join(f'"{word}"' for word in among)
        raise InvalidOption(f"{name} must be one of {words}, not {shown(value)}")
    return value
