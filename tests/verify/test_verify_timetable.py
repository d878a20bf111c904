import pytest

from windlass.verify.faults.all import KINDS
from windlass.verify.timetable import TRACKS, timetable


@pytest.mark.parametrize("families", TRACKS)
def test_the_same_seed_gives_the_same_table(families: tuple[str, ...]) -> None:
    tables = [timetable(KINDS, families, 7, count=60, rest=(0.5, 2)) for _ in range(2)]
    assert tables[0] == tables[1]
    assert tables[0] != timetable(KINDS, families, 8, count=60, rest=(0.5, 2))


@pytest.mark.parametrize("families", TRACKS)
@pytest.mark.parametrize("seed", range(5))
def test_every_kind_comes_once_before_any_comes_again(families: tuple[str, ...], seed: int) -> None:
    mine = {kind.name for kind in KINDS if kind.family in families}
    table = timetable(KINDS, families, seed, count=60, rest=(0.5, 2))
    assert {planned.kind for planned in table[: len(mine)]} == mine
    assert len(table) == 60
    assert all(0.5 <= planned.rest <= 2 for planned in table)


def test_kinds_have_names_of_their_own_and_a_track() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert {kind.family for kind in KINDS} == {family for track in TRACKS for family in track}


def test_nothing_possible_is_an_empty_table() -> None:
    assert timetable([], TRACKS[0], 1, count=10, rest=(1, 2)) == []
