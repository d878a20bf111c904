"""The line of what has arrived and waits for a slot: as it came, but what is urgent goes first."""

from typing import Any

from tests.worker.leases import a_lease

from windlass.worker.local_leases import Line, Ticket


def ticket(priority: int) -> Ticket:
    task: Any = None
    return Ticket(a_lease(priority=priority), task, 0, 0, 0.0)


def entered(line: Line) -> list[int]:
    found: list[int] = []
    while (next_one := line.enter()) is not None:
        found.append(next_one.lease.priority)
    return found


def test_it_keeps_the_order_of_what_has_arrived() -> None:
    line = Line(slots=10)
    line.add([ticket(3), ticket(1), ticket(2)])
    line.add([ticket(3), ticket(0)])
    assert entered(line) == [3, 1, 2, 3, 0]


def test_what_is_more_urgent_than_the_first_that_waits_goes_before_it() -> None:
    line = Line(slots=10)
    line.add([ticket(0), ticket(0)])
    line.add([ticket(9), ticket(5), ticket(0)])
    assert entered(line) == [9, 5, 0, 0, 0]


def test_whoever_waits_is_overtaken_by_those_alone_that_come_first_in_their_exchange() -> None:
    """The store has ordered them: what it puts behind another job stays behind it."""
    line = Line(slots=10)
    line.add([ticket(1)])
    line.add([ticket(0), ticket(9)])
    assert entered(line) == [1, 0, 9]
