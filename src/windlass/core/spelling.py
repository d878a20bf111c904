"""A name that nobody knows: which one was probably meant."""

import difflib
from collections.abc import Collection

_LIKE = 0.7
"""How much alike two names are, by difflib. "shwo" and "show" are 0.75, "create" and "secret" 0.67."""


def closest(name: str, known: Collection[str]) -> str | None:
    """The known name that is spelled most like this one; None if none is like it."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=_LIKE)
    return near[0] if near else None


def hint(name: str, known: Collection[str], those: str) -> str:
    """What to say of an unknown name: which one was meant, else those there are: `declared queues: a, b`."""
    near = closest(name, known)
    return f"{those}: {', '.join(known) or 'none'}" if near is None else f'did you mean "{near}"?'
