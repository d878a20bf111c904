"""The statement that calls a function. Arguments are bound; names come from this package alone."""

from functools import cache


@cache
def statement(schema: str, function: str, arguments: int) -> bytes:
    """Call a function of a namespace with so many arguments."""
    places = ", ".join(f"${place}" for place in range(1, arguments + 1))
    return f"SELECT * FROM {schema}.{function}({places})".encode()  # noqa: S608 - names of our own, quoted
