"""The processes of a server: as many as were asked for, and another one for each that dies."""

import logging
import multiprocessing
import signal
import socket
import time
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from types import FrameType

from windlass.api.options import ProcessArguments
from windlass.api.process import run_process
from windlass.api.socket_server import STOPPING

_log = logging.getLogger("windlass.api")

PAUSE = 1.0
"""Seconds before a process that died is replaced: one that cannot start does not take all of a core."""
_START = multiprocessing.get_context("spawn")


class Processes:
    """Starts processes, keeps their number, and stops them when this one is told to stop."""

    def __init__(self, arguments: ProcessArguments, listening: socket.socket, count: int) -> None:
        self._arguments = arguments
        self._listening = listening
        self._count = count
        self._processes: list[SpawnProcess] = []
        self._is_told_to_stop = False

    def run(self) -> None:
        """Keep them running until told to stop."""
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._stop)
        try:
            while not self._is_told_to_stop:
                self._fill()
                wait([each.sentinel for each in self._processes], timeout=PAUSE)
                self._bury()
        finally:
            self._end()

    def _fill(self) -> None:
        while len(self._processes) < self._count and not self._is_told_to_stop:
            process = _START.Process(target=run_process, args=(self._arguments, self._listening))
            process.start()
            self._processes.append(process)

    def _bury(self) -> None:
        dead = [each for each in self._processes if not each.is_alive()]
        for process in dead:
            self._processes.remove(process)
            if not self._is_told_to_stop:
                _log.error(
                    "server process %s has ended (exit code %s); another one takes its place",
                    process.pid,
                    process.exitcode,
                )
        if dead and not self._is_told_to_stop:
            time.sleep(PAUSE)

    def _stop(self, _: int, __: FrameType | None) -> None:
        self._is_told_to_stop = True
        for process in self._processes:
            process.terminate()

    def _end(self) -> None:
        self._is_told_to_stop = True
        # Each process closes it as well when it is told to stop. Were it open here, new clients would wait in
        # line until the last request is answered, and be turned away then.
        self._listening.close()
        until = time.monotonic() + STOPPING + 2 * PAUSE
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
