import pytest

from windlass.errors import InvalidOption
from windlass.worker.asking import PREFETCH, Prefetch
from windlass.worker.options import Group, WorkerOptions, groups_of
from windlass.worker.shares import Shares


def test_without_a_word_all_queues_of_the_app_are_served() -> None:
    assert groups_of(WorkerOptions(concurrency=3), {"default": 1, "mail": 4}) == (
        Group(slots=3, queues=("default", "mail"), weights=(1, 4)),
    )


def test_queues_that_are_named_without_weights_are_emptied_in_their_order() -> None:
    (group,) = groups_of(WorkerOptions(queues=("high", "default")), {"default": 1, "high": 4})
    assert (group.queues, group.weights) == (("high", "default"), ())


def test_queues_of_windlass_have_a_slot_more() -> None:
    every = ("default", "windlass.webhooks")
    more = Group(slots=1, queues=("windlass.webhooks",))
    assert groups_of(WorkerOptions(concurrency=3), dict.fromkeys(every, 1)) == (
        Group(slots=3, queues=every, weights=(1, 1)),
        more,
    )
    assert groups_of(WorkerOptions(concurrency=3, queues=every), {}) == (
        Group(slots=3, queues=every),
        more,
    )
    assert len(groups_of(WorkerOptions(queues=("default",)), dict.fromkeys(every, 1))) == 1


def test_queues_may_have_weights() -> None:
    (group,) = groups_of(WorkerOptions(queues=("high=5", "default=2", "low")), {})
    assert (group.queues, group.weights) == (("high", "default", "low"), (5, 2, 1))


def test_groups_have_slots_of_their_own() -> None:
    assert groups_of(WorkerOptions(groups=("7:high,default", "1:low")), {}) == (
        Group(slots=7, queues=("high", "default")),
        Group(slots=1, queues=("low",)),
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (WorkerOptions(processes=0), "processes must be"),
        (WorkerOptions(concurrency=0), "concurrency must be"),
        (WorkerOptions(max_jobs=0), "max_jobs must be"),
        (WorkerOptions(max_memory=0), "max_memory must be"),
        (WorkerOptions(queues=("a=x",)), 'queue "a": a weight is a whole number, as in a=5'),
        (WorkerOptions(queues=("a=0",)), 'the weight of queue "a" must be'),
        (WorkerOptions(queues=("a", "a")), "a queue is named twice"),
        (WorkerOptions(queues=("no spaces!",)), "no spaces!"),
        (WorkerOptions(groups=("high",)), 'a group is "slots:queue,queue"'),
        (WorkerOptions(groups=("0:high",)), "slots of a group must be"),
        (WorkerOptions(groups=("1:a",), queues=("a",)), "either queues or groups"),
        (WorkerOptions(), "declares no queue"),
    ],
)
def test_options_without_meaning_are_refused(options: WorkerOptions, words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        groups_of(options, {})
    assert words in str(caught.value)


def served(shares: Shares, room: int, backlog: dict[str, int]) -> list[str]:
    """What a store with these jobs hands out to one ask."""
    order = shares.order()
    taken: list[str] = []
    bound = shares.bound(order, room)
    for queue in order:
        some = min(backlog[queue], bound - len(taken))
        backlog[queue] -= some
        taken += [queue] * some
    shares.received(order, taken)
    return taken


@pytest.mark.parametrize("room", [1, 4, 16, 1_000])
def test_weights_share_the_jobs(room: int) -> None:
    shares = Shares(Group(slots=1, queues=("high", "default", "low"), weights=(5, 2, 1)))
    backlog = dict.fromkeys(("high", "default", "low"), 100_000)
    taken: list[str] = []
    while len(taken) < 8_000:
        taken += served(shares, room, backlog)
    counts = {name: taken[:8_000].count(name) for name in backlog}
    assert counts == {
        "high": pytest.approx(5_000, abs=room + 8),
        "default": pytest.approx(2_000, abs=room + 8),
        "low": pytest.approx(1_000, abs=room + 8),
    }


def test_an_empty_queue_leaves_its_share_and_saves_nothing() -> None:
    shares = Shares(Group(slots=1, queues=("high", "low"), weights=(3, 1)))
    backlog = {"high": 0, "low": 1_000}
    assert len([job for _ in range(100) for job in served(shares, 4, backlog)]) >= 100
    backlog = {"high": 1_000, "low": 1_000}
    taken = [job for _ in range(100) for job in served(shares, 4, backlog)][:100]
    assert taken.count("high") == pytest.approx(75, abs=8), "no burst for what it did not use"


MOST = 2_000
TWENTY = tuple(f"q{n}" for n in range(20))


def test_one_busy_queue_among_twenty_has_all_the_room() -> None:
    shares = Shares(Group(slots=16, queues=TWENTY, weights=(1,) * 20))
    backlog = dict.fromkeys(TWENTY, 0) | {"q7": 100_000}
    for _ in range(8):
        served(shares, 500, backlog)
    assert [len(served(shares, 500, backlog)) for _ in range(100)] == [500] * 100


def test_a_queue_beside_a_backlog_is_served_by_the_next_ask() -> None:
    shares = Shares(Group(slots=16, queues=TWENTY, weights=(1,) * 20))
    backlog = dict.fromkeys(TWENTY, 0) | {"q0": 100_000}
    for _ in range(100):
        served(shares, 16, backlog)
    backlog["q19"] = 3
    assert served(shares, 16, backlog).count("q19") == 3


def test_long_jobs_of_one_queue_do_not_take_the_slots_of_a_worker_that_has_just_started() -> None:
    shares = Shares(Group(slots=16, queues=("default", "high"), weights=(1, 1)))
    backlog = {"default": 1_000, "high": 1_000}
    taken: list[str] = []
    while len(taken) < 16:
        taken += served(shares, 16 - len(taken), backlog)
    assert taken.count("high") == pytest.approx(8, abs=1)


def test_a_busy_queue_among_two_hundred_is_in_every_ask() -> None:
    queues = tuple(f"q{n}" for n in range(200))
    shares = Shares(Group(slots=16, queues=queues, weights=(1,) * 200))
    backlog = dict.fromkeys(queues, 0) | {"q150": 100_000}
    for _ in range(20):
        served(shares, 16, backlog)
    asked: set[str] = set()
    for _ in range(10):
        asked.update(shares.order())
        assert set(served(shares, 16, backlog)) == {"q150"}
    assert asked == set(queues)


def test_without_weights_the_order_stays() -> None:
    shares = Shares(Group(slots=1, queues=("b", "a")))
    assert [shares.order() for _ in range(3)] == [("b", "a")] * 3


def test_more_queues_than_an_ask_names_take_turns() -> None:
    queues = tuple(f"q{n}" for n in range(250))
    shares = Shares(Group(slots=1, queues=queues))
    asked = [shares.order() for _ in range(3)]
    assert {len(order) for order in asked} == {100}
    assert {name for order in asked for name in order} == set(queues)


def test_nothing_is_prefetched_before_anything_is_known() -> None:
    assert Prefetch(16, wait=PREFETCH, most=MOST).size == 0


def test_prefetch_is_worth_fifty_milliseconds() -> None:
    prefetch = Prefetch(10, wait=PREFETCH, most=MOST)
    for _ in range(20):
        prefetch.measured(runtime=0.01, waited=0.001)
    assert prefetch.size == 50
    for _ in range(40):
        prefetch.measured(runtime=1.0, waited=0.001)
    assert prefetch.size == 0
    for _ in range(60):
        prefetch.measured(runtime=0.0, waited=0.001)
    assert prefetch.size == MOST


def test_prefetch_shrinks_when_jobs_really_wait() -> None:
    """Ten slots on a loop that each job keeps to itself are one."""
    prefetch = Prefetch(10, wait=PREFETCH, most=MOST)
    for _ in range(20):
        prefetch.measured(runtime=0.005, waited=0.01)
    assert prefetch.size == 100
    prefetch.measured(runtime=0.005, waited=0.5)
    assert prefetch.size < 100
    for _ in range(3):
        prefetch.measured(runtime=0.005, waited=0.5)
    assert prefetch.size <= 1
    prefetch.stop()
    assert prefetch.size == 0
