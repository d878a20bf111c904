"""How the state machine says that a broker is wrong."""


class Violated(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, *shown: object) -> None:
        self.invariant = invariant
        super().__init__("\n  ".join((f"violated: {invariant}", *map(repr, shown))))


class Differs(AssertionError):
    """Two brokers gave different answers to the same call."""

    def __init__(self, what: str, ours: object, theirs: object) -> None:
        self.what = what
        super().__init__(f"different: {what}\n  model: {ours!r}\n  store: {theirs!r}")


def require(invariant: str, holds: object, *shown: object) -> None:
    """Refuse to go on if an invariant does not hold; what is shown says where."""
    if not holds:
        raise Violated(invariant, *shown)
