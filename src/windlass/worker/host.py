"""What the machine says of itself and of processes: enough to name a process for good, to see that it was
stopped, and to tell an out-of-memory kill from another.

All of it is read from `/proc` and the control groups. Elsewhere than on Linux the answers are "not known",
and what builds on them is left out: a session of a process that is gone is then ended by its silence.
"""

import os
import socket
from pathlib import Path
from typing import Protocol

STOPPED = frozenset("Tt")


class Host(Protocol):
    """The facts that a supervisor asks for. A simulator brings its own."""

    name: str
    boot: str
    """New with every start of the machine; empty: not known."""
    pid_namespace: str

    def process_started(self, pid: int) -> int | None:
        """When a process was started, on a clock of this boot; None: there is no such process; 0: unknown."""
        ...

    def is_stopped(self, pid: int) -> bool:
        """Whether a process was stopped by a signal or a debugger."""
        ...

    def memory(self, pid: int) -> int:
        """Resident bytes; 0: not known."""
        ...

    def oom_kills(self) -> int:
        """How many processes of this control group (else: of the machine) were killed for lack of memory."""
        ...


class Machine:
    """The machine that this process runs on."""

    def __init__(self, *, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        self._has_proc = (proc / "self" / "stat").exists()
        self._oom_file, self._oom_key = self._find_oom_counter(cgroups)
        self.name = socket.gethostname()
        self.boot = _read(proc / "sys/kernel/random/boot_id").strip()
        self.pid_namespace = self._namespace()

    def process_started(self, pid: int) -> int | None:
        """The start time in the kernel's ticks. A zombie is gone: it runs nothing."""
        if not self._has_proc:
            return 0 if _exists(pid) else None
        fields = self._stat(pid)
        return int(fields[19]) if fields and fields[0] not in "ZX" else None

    def is_stopped(self, pid: int) -> bool:
        """From the state of its main thread: a stop signal stops all."""
        fields = self._stat(pid)
        return bool(fields) and fields[0] in STOPPED

    def memory(self, pid: int) -> int:
        """Resident bytes."""
        fields = _read(self._proc / str(pid) / "statm").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0

    def oom_kills(self) -> int:
        """From the counter of the control group, which counts the kills by any limit."""
        for line in _read(self._oom_file).splitlines() if self._oom_file else ():
            key, _, count = line.partition(" ")
            if key == self._oom_key and count.strip().isdigit():
                return int(count)
        return 0

    def _stat(self, pid: int) -> list[str]:
        """The fields of `/proc/pid/stat` from the state on; the name before it may hold anything."""
        return _read(self._proc / str(pid) / "stat").rpartition(")")[2].split()

    def _namespace(self) -> str:
        try:
            return str((self._proc / "self/ns/pid").readlink())
        except OSError:
            return ""

    def _find_oom_counter(self, cgroups: Path) -> tuple[Path | None, str]:
        """Where kills are counted: the second version of control groups, the first, or the whole machine."""
        for line in _read(self._proc / "self/cgroup").splitlines():
            _, controllers, place = [*line.split(":", 2), "", ""][:3]
            inside = place.lstrip("/")
            if controllers == "":
                # Inside a container its own group may be mounted as the root.
                candidates = [cgroups / inside / "memory.events", cgroups / "memory.events"]
            elif "memory" in controllers.split(","):
                folder = cgroups / "memory"
                candidates = [folder / inside / "memory.oom_control", folder / "memory.oom_control"]
            else:
                continue
            for file in candidates:
                if "oom_kill " in _read(file):
                    return file, "oom_kill"
        machine = self._proc / "vmstat"
        return (machine, "oom_kill") if "oom_kill " in _read(machine) else (None, "")


def process_name(host: Host, pid: int) -> str:
    """A name for a process. No other process of this boot and pid namespace ever has it."""
    return f"{pid}:{host.process_started(pid) or 0}"


def process_named(name: str) -> tuple[int, int] | None:
    """The pid and the start time of a process by its name; None: it is not such a name."""
    pid, _, started = name.partition(":")
    return (int(pid), int(started)) if pid.isdecimal() and started.isdecimal() else None


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
