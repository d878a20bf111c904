"""A producer: `python -m windlass.verify.producer NAME STYLE RATE SEED`, until it is told to stop (SIGTERM).

It writes down what it is about to send, sends it, and writes down what it was told: accepted, refused, or
nothing, in which case it sends the same ids again. One whose calls block is interrupted by SIGUSR1, in the
call that is under way or in its next one, and forks after SIGUSR2.
"""

import asyncio
import os
import random
import signal
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from windlass import Call, Job
from windlass.errors import EnqueueRefused, StoreReplaced, WindlassError
from windlass.verify import history
from windlass.verify.ground import history_folder
from windlass.verify.history import Journal
from windlass.verify.mix import calls
from windlass.verify.processes import end_with_parent
from windlass.verify.tasks import app

COUNT = struct.Struct("<q")
RESEND_WITHIN = 25.0
"""Seconds after its first try: within the window of the run, with what the client itself tries."""
SIZES = (1, 1, 1, 2, 5, 20, 60, 150)
"""Jobs of one call."""
CHILD_CALLS = 10


class Interrupted(Exception):
    """Raised by a signal handler in the middle of a call."""


class Tally:
    """How many jobs were accepted, for the run to read."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.count = 0

    def add(self, count: int) -> None:
        """More were accepted."""
        self.count += count
        os.pwrite(self._file, COUNT.pack(self.count), 0)


def read_tally(path: Path) -> int:
    """What a producer has written."""
    try:
        return COUNT.unpack(path.read_bytes())[0]
    except (OSError, struct.error):
        return 0


class Producer:
    """Makes calls, at a rate."""

    def __init__(self, name: str, rate: float, seed: int) -> None:
        self._name = name
        self._open()
        self._draw = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        self._rate = rate
        self._due = time.monotonic()
        self.stopping = False
        self._in_call = False
        self._wants_interrupt = False
        self._call_lasts = 0.001
        self._wants_fork = False
        self._forks = 0

    def _open(self) -> None:
        folder = history_folder()
        self._journal = Journal.open(folder, role="producer", name=self._name)
        self._tally = Tally(folder / f"{self._name}.tally")

    def stop(self, *_: object) -> None:
        """End after the call that is under way."""
        self.stopping = True

    def interrupt(self, *_: object) -> None:
        """Raise in the middle of a call: of this one, or of the next. Calls are short, and few signals would
        meet one by chance.
        """
        if self._in_call:
            raise Interrupted
        self._wants_interrupt = True

    def _interrupt_soon(self) -> None:
        """Ring within the call that begins now."""
        if self._wants_interrupt:
            self._wants_interrupt = False
            signal.setitimer(signal.ITIMER_REAL, self._draw.uniform(0.000_01, self._call_lasts))

    def fork_soon(self, *_: object) -> None:
        """Fork after the call that is under way."""
        self._wants_fork = True

    # --- what to send ---------------------------------------------------------------------------------------

    def batch(self) -> list[Call[Any]]:
        """The next calls."""
        return calls(self._draw, self._draw.choice(SIZES))

    def pause(self, count: int) -> float:
        """Seconds to wait after so many jobs, so that the rate holds on average."""
        now = time.monotonic()
        # What an outage kept it from sending is made up for in part only: a flood would hide what follows.
        self._due = max(self._due, now - 2) + count / self._rate
        return max(0.0, self._due - now)

    # --- what is written down -------------------------------------------------------------------------------

    def invoke(self, batch: Sequence[Call[Any]], *, together: bool) -> int:
        """Before it is sent."""
        number = self._journal.call()
        asked = tuple(_asked(call, 0 if together else place) for place, call in enumerate(batch))
        self._journal.write(history.Enqueue(call=number, jobs=asked))
        return number

    def accepted(self, number: int, batch: Sequence[Call[Any]], jobs: Sequence[Job[Any]]) -> None:
        """The store's answer."""
        receipts = tuple(
            history.Receipt(
                call.job.id,
                "created" if job.created else "duplicate",
                None if job.created else job.id,
            )
            for call, job in zip(batch, jobs, strict=True)
        )
        self._journal.write(history.Enqueued(call=number, receipts=receipts))
        self._tally.add(len(batch))

    def failed(self, number: int, error: Exception) -> bool:
        """No answer, or a no; whether nobody knows."""
        if isinstance(error, EnqueueRefused):
            self._journal.write(history.Fail(call=number, why=type(error).__name__))
            return False
        self._journal.write(history.Info(call=number, why=type(error).__name__))
        self.stopping = self.stopping or isinstance(error, StoreReplaced)  # only who starts anew gets on
        return True

    # --- two styles -----------------------------------------------------------------------------------------

    def run_blocking(self) -> None:
        """As a script or a web server with threads does it."""
        while not self.stopping:
            batch = self.batch()
            self._send(batch)
            if self._wants_fork:
                self._fork()
            time.sleep(self.pause(len(batch)))
        app.close()

    def _fork(self) -> None:
        """Fork, and let the child enqueue while this process goes on, closes its app, or ends."""
        self._wants_fork = False
        self._forks += 1
        then = self._draw.choice(("go on", "close", "end"))
        pid = os.fork()
        if pid == 0:
            self._be_a_child()
        if then == "close":
            app.close()
        elif then == "end":
            self.stopping = True
        else:
            os.waitpid(pid, 0)

    def _be_a_child(self) -> NoReturn:
        code = 1
        try:
            self._name = f"{self._name}-child{self._forks}"
            self._draw = random.Random(self._name)  # noqa: S311 - to be repeated, not to be secret
            self._open()
            for _ in range(CHILD_CALLS):
                self._send(self.batch())
            app.close()
            code = 0
        finally:
            os._exit(code)

    def _send(self, batch: Sequence[Call[Any]]) -> None:
        until = time.monotonic() + RESEND_WITHIN
        while True:
            number = self.invoke(batch, together=True)
            began = time.monotonic()
            try:
                self._in_call = True
                self._interrupt_soon()
                jobs = app.enqueue_many(batch)
                self._in_call = False
                self._call_lasts = time.monotonic() - began
                self.accepted(number, batch, jobs)
            except (WindlassError, Interrupted) as error:
                self._in_call = False
                if self.failed(number, error) and time.monotonic() < until and not self.stopping:
                    continue
            return

    async def run_async(self) -> None:
        """As an async server does it: many callers at once, whose calls travel together."""
        while not self.stopping:
            batch = self.batch()
            if len(batch) > 20 or {call.job.id for call in batch if call.job.after}:
                await self._asend(batch)
            else:
                await asyncio.gather(*(self._asend([call]) for call in batch))
            await asyncio.sleep(self.pause(len(batch)))
        await app.aclose()

    async def _asend(self, batch: Sequence[Call[Any]]) -> None:
        until = time.monotonic() + RESEND_WITHIN
        while True:
            number = self.invoke(batch, together=True)
            try:
                if len(batch) == 1:
                    jobs = [await app.asend_one(batch[0])]
                else:
                    jobs = await app.aenqueue_many(batch)
                self.accepted(number, batch, jobs)
            except WindlassError as error:
                if self.failed(number, error) and time.monotonic() < until and not self.stopping:
                    continue
            return


def _asked(call: Call[Any], group: int) -> history.Asked:
    job = call.job
    return history.Asked(
        job=job.id,
        task=job.task,
        queue=job.queue,
        lane=job.lane,
        key=job.key,
        mode=job.mode.value,
        delay=job.delay,
        expires=job.expires,
        max_attempts=job.max_attempts,
        after=tuple(edge.parent for edge in job.after),
        group=group,
    )


def main() -> None:
    """Read the arguments and produce."""
    end_with_parent()
    name, style, rate, seed = sys.argv[1:]
    producer = Producer(name, float(rate), int(seed))
    signal.signal(signal.SIGTERM, producer.stop)
    signal.signal(signal.SIGUSR1, producer.interrupt)
    signal.signal(signal.SIGALRM, producer.interrupt)
    signal.signal(signal.SIGUSR2, producer.fork_soon)
    if style == "async":
        asyncio.run(producer.run_async())
    else:
        producer.run_blocking()


if __name__ == "__main__":
    main()
