"""A child that speaks the messages and runs nothing: `python fake_child.py <what> FD`.

It prints `<pid> <word>` for what happens to it, so that a test can wait for that.
"""

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec

from windlass.worker.messages import Begin, Drain, Failed, Go, Ready, ToChild, ToSupervisor, framed
from windlass.worker.table import Table

JOB = "01900000-0000-7000-8000-000000000000"
_decoder = msgspec.msgpack.Decoder[ToChild](ToChild)


def main(what: str, descriptor: int) -> None:
    """Live as the first argument says."""
    control = socket.socket(fileno=descriptor)
    if what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "mask":
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        words = ["blocked" if signal.SIGINT in blocked else "open", *sorted(opened())]
        tell(control, Failed(" ".join(words)))
    begin = read(control)
    assert isinstance(begin, Begin)
    if what == "fails":
        tell(control, Failed("for the test"))
        sys.exit(3)
    table = Table.open(Path(begin.table))
    tell(control, Ready())
    while (message := read(control)) is not None:
        if isinstance(message, Go):
            table.file(0, JOB, 1)
            table.start(0)
            say("goes")
            if what == "mute":
                control.close()
                signal.pause()
        if isinstance(message, Drain):
            table.clear(0)
            table.end_cleanly()
            say("drained")
            return
    say("orphaned")


def read(control: socket.socket) -> ToChild | None:
    size = control.recv(4, socket.MSG_WAITALL)
    return _decoder.decode(control.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)) if size else None


def tell(control: socket.socket, message: ToSupervisor) -> None:
    control.sendall(framed(message))


def say(word: str) -> None:
    os.write(1, f"{os.getpid()} {word}\n".encode())


def opened() -> list[str]:
    """The kinds of descriptors that came along."""
    found: list[str] = []
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        if int(descriptor.name) <= 2:
            continue
        with contextlib.suppress(OSError):  # that of the listing itself
            found.append(str(descriptor.readlink()).partition(":")[0])
    return found


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
