"""How things are at a moment of the demo."""

import msgspec

from windlass.core.state import TERMINAL, State


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The state of things at a moment."""

    seconds: float
    states: dict[State, int]
    kinds: dict[str, dict[State, int]]
    tenants: dict[str, int]
    """Mails done, by tenant."""

    @property
    def finished(self) -> int:
        """Jobs that will not run again."""
        return sum(self.states[state] for state in TERMINAL)

    def count(self, kind: str, state: State) -> int:
        """Jobs of a kind in a state."""
        return self.kinds.get(kind, {}).get(state, 0)

    def is_over(self, kind: str) -> bool:
        """Whether there are jobs of a kind, and all have finished."""
        counts = self.kinds.get(kind, {})
        return bool(counts) and all(not count or state in TERMINAL for state, count in counts.items())
