"""How much one call of a verb may carry. A broker refuses more, before anything happens."""

from collections.abc import Sequence

from windlass.errors import ContractError

CALL_ITEMS = 1_000
ASK_QUEUES = 100
FAN_OUT = 100
"""Dependents that one step tells of an end; sweep tells the rest."""


def check_items(what: str, items: Sequence[object]) -> None:
    """Refuse a call with too many items."""
    if len(items) > CALL_ITEMS:
        raise ContractError(f"at most {CALL_ITEMS} {what} a call, got {len(items)}")
