"""Tables on narrow terminals keep what matters."""

from windlass.cli.output import Column, fitting

COLUMNS = [
    Column[list[str]]("id", lambda row: row[0]),
    Column[list[str]]("task", lambda row: row[1], wraps=True),
    Column[list[str]]("queue", lambda row: row[2], spare=1),
    Column[list[str]]("lane", lambda row: row[3], wraps=True, spare=2),
]
ROWS = [["i" * 36, "t" * 30, "q" * 10, "l" * 40]]


def test_a_wide_terminal_has_room_for_all() -> None:
    assert fitting(COLUMNS, ROWS, 100) == [0, 1, 2, 3]


def test_what_can_be_spared_goes_first() -> None:
    assert fitting(COLUMNS, ROWS, 79) == [0, 1, 2]
    assert fitting(COLUMNS, ROWS, 60) == [0, 1]


def test_an_id_is_never_dropped() -> None:
    assert fitting(COLUMNS, ROWS, 20) == [0, 1]
