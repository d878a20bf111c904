"""Processes of jobs, and the threads of a worker, where two things happen at once."""

import asyncio
import signal
import threading
from typing import Any

from windlass.worker.in_thread import Threads
from windlass.worker.local_leases import Ticket
from windlass.worker.process import Prepare, ProcessHandle


def test_signals_are_heard_after_processes_were_started_together() -> None:
    async def main() -> None:
        some = await asyncio.gather(*(ProcessHandle.start(Prepare("nothing:app", "")) for _ in range(3)))
        for process in some:
            await process.close()

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    asyncio.run(main())
    try:
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def blank() -> Ticket:
    """One that nobody reads."""
    nothing: Any = None
    return Ticket(nothing, nothing, 0, 0, 0.0)


def test_after_a_storm_as_many_tickets_run_at_once_as_there_are_slots() -> None:
    """A ticket must never wait for a thread that is thought to be idle while all others are at work."""
    slots, storm, following = 4, 2_000, 3
    free = threading.Semaphore(slots)
    meeting = threading.Barrier(slots + 1)
    ran: list[Ticket] = []
    last: set[Ticket] = set()

    def work(ticket: Ticket) -> Ticket | None:
        ran.append(ticket)
        if ticket in last:
            meeting.wait(10)
        elif len(ran) % following == 0:
            return blank()  # its own slot goes on
        free.release()
        return None

    threads = Threads(work, slots)
    for _ in range(storm):
        assert free.acquire(timeout=10)
        threads.put(blank())
    for _ in range(slots):
        assert free.acquire(timeout=10)
    for _ in range(slots):
        ticket = blank()
        last.add(ticket)
        threads.put(ticket)
    meeting.wait(10)
    threads.close()
    assert len(ran) >= storm + slots
