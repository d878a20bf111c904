import itertools
import os
import threading
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core import ids
from windlass.errors import InvalidOption

MS = st.integers(0, 2**48 - 1)
RANDOM = st.integers(0, 2**74 - 1)
TAGS = st.none() | st.integers(0, 2**16 - 1)


@given(MS, RANDOM, TAGS)
def test_an_id_is_a_canonical_uuid7(ms: int, random_bits: int, tag: int | None) -> None:
    made = ids.new_job_id(ms, random_bits, tag)
    parsed = uuid.UUID(made)
    assert str(parsed) == made == ids.check_job_id(made)
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert ids.created_ms(made) == parsed.int >> 80 == ms
    assert ids.tag_of(made) == (random_bits & 0xFFFF if tag is None else tag)


@given(MS, RANDOM, RANDOM)
def test_no_random_bit_is_lost(ms: int, one: int, other: int) -> None:
    assert (ids.new_job_id(ms, one) < ids.new_job_id(ms, other)) == (one < other)
    assert (ids.new_job_id(ms, one) == ids.new_job_id(ms, other)) == (one == other)


@given(st.integers())
def test_an_id_that_follows_from_something_else_takes_any_time(at: int) -> None:
    made = ids.check_job_id(ids.derived_id(at, 7, "an order", 1))
    assert made == ids.derived_id(at, 7, "an order", 1) != ids.derived_id(at, 7, "an order", 2)
    if 0 <= at < 2**48 * 1_000:
        assert ids.created_ms(made) == at // 1_000


@given(MS, st.binary(min_size=10, max_size=10))
def test_bytes_stand_for_their_last_74_bits(ms: int, random_bytes: bytes) -> None:
    number = int.from_bytes(random_bytes, "big") % 2**74
    assert ids.new_job_id(ms, random_bytes) == ids.new_job_id(ms, number)


@given(MS, MS, RANDOM, RANDOM)
def test_later_ids_sort_later(early: int, late: int, one: int, other: int) -> None:
    if early < late:
        assert ids.new_job_id(early, one) < ids.new_job_id(late, other)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ids.new_job_id(-1, 0), "now_ms must be a whole number"),
        (lambda: ids.new_job_id(2**48, 0), "now_ms must be a whole number"),
        (lambda: ids.new_job_id(0, 2**74), "random_bits must be a whole number"),
        (lambda: ids.new_job_id(0, b"short"), "random_bits must be 10 bytes, got 5"),
        (lambda: ids.new_job_id(0, 0, 2**16), "tag must be a whole number"),
        (
            lambda: ids.JobIds(lambda: 0, os.urandom, lock=threading.Lock, tag=-1),
            "tag must be a whole number",
        ),
    ],
)
def test_numbers_out_of_range_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        call()


GOOD = "0192e4a0-5b3c-7abc-8def-0123456789ab"


@pytest.mark.parametrize(
    "bad",
    [
        GOOD.upper(),
        GOOD + "\n",
        " " + GOOD,
        GOOD.replace("-", ""),
        "{" + GOOD + "}",
        "urn:uuid:" + GOOD,
        GOOD.replace("7abc", "4abc"),
        GOOD.replace("8def", "cdef"),
        GOOD[:-1] + "٣",
        "",
        "x" * 10_000,
        None,
        uuid.UUID(GOOD),
        GOOD.encode(),
    ],
)
def test_whatever_is_not_exactly_a_job_id_is_refused(bad: object) -> None:
    with pytest.raises(InvalidOption, match="is not a UUIDv7 in lower-case text") as refused:
        ids.check_job_id(bad)
    assert len(str(refused.value)) < 300


class Text(str):
    __slots__ = ()


def test_a_checked_id_is_a_plain_string() -> None:
    assert type(ids.check_job_id(Text(GOOD))) is str


def made_at(times: list[int], randbytes: Callable[[int], bytes], tag: int | None) -> list[str]:
    clock = iter(times)
    make = ids.JobIds(lambda: next(clock), randbytes, lock=threading.Lock, tag=tag)
    return [make() for _ in times]


@given(st.lists(st.integers(1_000, 1_010), min_size=1, max_size=50), st.randoms(use_true_random=False), TAGS)
def test_ids_grow_whatever_the_clock_does(times: list[int], random: object, tag: int | None) -> None:
    made = made_at(times, random.randbytes, tag)  # type: ignore[attr-defined]
    assert all(one < other for one, other in itertools.pairwise(made))
    assert [ids.check_job_id(each) for each in made] == made
    assert [ids.created_ms(each) for each in made] == list(itertools.accumulate(times, max))
    if tag is not None:
        assert {ids.tag_of(each) for each in made} == {tag}


@pytest.mark.parametrize("tag", [None, 0, 7, 0xFFFF])
def test_a_full_counter_moves_on_to_the_next_millisecond(tag: int | None) -> None:
    made = made_at([5] * 100, lambda size: b"\xff" * size, tag)  # as full as can be, every time
    assert all(one < other for one, other in itertools.pairwise(made))
    assert [ids.created_ms(each) for each in made] == list(range(5, 105))


def test_all_bits_but_the_tag_are_random() -> None:
    never, always = 0, 2**128 - 1
    for _ in range(200):
        number = uuid.UUID(ids.JobIds(lambda: 0, os.urandom, lock=threading.Lock, tag=0)()).int
        never, always = never | number, always & number
    assert (never & ~always).bit_count() == 58


def test_a_namespace_has_a_tag() -> None:
    # Ids outlive releases: a tag that is made in another way would lead nowhere.
    assert ids.namespace_tag("windlass") == 0x002D
    tags = {ids.namespace_tag(f"shop_{number}") for number in range(1_000)}
    assert tags <= set(range(2**16))
    assert len(tags) > 980


def test_the_pool_of_steps_is_filled_again() -> None:
    sizes: list[int] = []

    def randbytes(size: int) -> bytes:
        sizes.append(size)
        return os.urandom(size)

    made = made_at([5] * 3_000, randbytes, None)
    assert len(set(made)) == 3_000
    assert sizes == [10, 2_048, 2_048, 2_048]


@pytest.mark.parametrize("tag", [None, 7])
@pytest.mark.parametrize("randbytes", [os.urandom, bytes, lambda size: b"\xff" * size])
def test_many_ids_are_as_those_made_one_by_one(tag: int | None, randbytes: Callable[[int], bytes]) -> None:
    make = ids.JobIds(lambda: 5, randbytes, lock=threading.Lock, tag=tag)
    made = [make(), *make.many(2_500), make(), *make.many(0), *make.many(1)]
    assert len(made) == 2_503
    assert all(one < other for one, other in itertools.pairwise(made))
    assert [ids.check_job_id(each) for each in made] == made
    assert tag is None or {ids.tag_of(each) for each in made} == {tag}


@pytest.mark.parametrize("tag", [None, 7])
def test_many_ids_go_by_random_steps(tag: int | None) -> None:
    made = ids.JobIds(lambda: 5, os.urandom, lock=threading.Lock, tag=tag).many(500)
    numbers = [int(each[-12:], 16) for each in made if each[:24] == made[0][:24]]
    assert len({other - one for one, other in itertools.pairwise(numbers)}) > len(numbers) // 2


def test_a_new_seed_forgets_what_was_drawn() -> None:
    locks: list[threading.Lock] = []

    def lock() -> threading.Lock:
        locks.append(threading.Lock())
        return locks[-1]

    make = ids.JobIds(lambda: 5, os.urandom, lock=lock)
    parent = [make() for _ in range(10)]
    locks[0].acquire()  # held by a thread that does not live on in the child
    make.reseed()
    child = [make() for _ in range(10)]
    assert not {each[:24] for each in parent} & {each[:24] for each in child}
    assert len(locks) == 2


def test_threads_share_a_maker() -> None:
    make = ids.JobIds(lambda: 5, os.urandom, lock=threading.Lock)
    made: list[list[str]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda own=own: own.extend(make() for _ in range(2_000))) for own in made
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(own == sorted(own) for own in made)
    assert len({each for own in made for each in own}) == 8_000
