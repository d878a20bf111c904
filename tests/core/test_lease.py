from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.bounds import ASK_QUEUES
from windlass.core.lease import CLAIM_JOBS, DRAW_RANGE, Ask, check_ask
from windlass.core.units import DAY
from windlass.errors import ContractError

WORKER = {"session": "s", "seq": 1}
CONSUMER = {"visibility": 30}

askers = st.one_of(
    st.fixed_dictionaries({"session": st.text(), "seq": st.integers(1, 2**53)}),
    st.fixed_dictionaries({"visibility": st.integers(1, DAY)}),
)


@given(askers, st.integers(0, CLAIM_JOBS), st.integers(0, CLAIM_JOBS), st.integers(0, DRAW_RANGE - 1))
def test_a_sensible_ask_passes_unchanged(asker: dict[str, Any], one: int, other: int, draw: int):
    slots, limit = min(one, other), max(one, other)
    ask = Ask(queues=("q",), slots=slots, limit=limit, soon=draw % (limit + 1), draw=draw, **asker)
    assert check_ask(ask) is ask


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either session and seq, or visibility"),
        ({"session": "s"}, "either session and seq, or visibility"),
        ({"seq": 1}, "either session and seq, or visibility"),
        ({**WORKER, **CONSUMER}, "either session and seq, or visibility"),
        ({"session": "s", **CONSUMER}, "either session and seq, or visibility"),
        ({"seq": 1, **CONSUMER}, "either session and seq, or visibility"),
        ({"session": "s", "seq": 0}, "seq counts from 1, got 0"),
        ({"visibility": 0}, "visibility must be positive, got 0"),
        ({"visibility": -1}, "visibility must be positive, got -1"),
        ({**WORKER, "queues": ("q",) * (ASK_QUEUES + 1)}, "an ask names at most .* queues, got"),
        ({**WORKER, "slots": -1}, "0 <= slots <= limit <= 1000, got -1 and 1"),
        ({**WORKER, "slots": 2}, "got 2 and 1"),
        ({**WORKER, "limit": 1_001}, "got 1 and 1001"),
        ({**WORKER, "soon": -1}, "0 <= soon <= limit, got -1 and 1"),
        ({**WORKER, "soon": 2}, "0 <= soon <= limit, got 2 and 1"),
        ({**CONSUMER, "draw": -1}, "draw must be from 0 to 2.32 - 1, got -1"),
        ({**CONSUMER, "draw": 2**32}, "got 4294967296"),
    ],
)
def test_an_ask_without_a_meaning_is_an_error(options: dict[str, Any], message: str):
    with pytest.raises(ContractError, match=message):
        check_ask(Ask(**{"queues": ("q",), "slots": 1, "limit": 1, **options}))
