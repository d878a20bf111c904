"""What is refused before the store is asked."""

from collections.abc import Sequence

from windlass.core.bounds import check_items
from windlass.core.lease import Ask, check_ask
from windlass.core.outcome import Outcome
from windlass.core.query import PAGE_ROWS
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.errors import ContractError


def check_settlements(items: Sequence[Settlement], ask: Ask | None) -> None:
    """Refuse settlements that have no meaning."""
    check_items("settlements", items)
    check_items("children", [child for item in items for child in item.spawn])
    for item in items:
        if item.spawn and item.outcome is not Outcome.DONE:
            raise ContractError(f"children travel only with done, not with {item.outcome}")
        if (item.outcome is Outcome.HOLD) != (item.hold is not None):
            raise ContractError("a hold key goes with the outcome hold, and with no other")
    if ask is not None:
        check_ask(ask)


def check_page(limit: int) -> None:
    """Refuse a page that is none."""
    if not 1 <= limit <= PAGE_ROWS:
        raise ContractError(f"a page has 1 to {PAGE_ROWS} rows, not {limit}")


def check_purge(state: State) -> None:
    """Refuse to purge what runs."""
    if state is State.RUNNING:
        raise ContractError("running jobs are not purged; cancel them")
