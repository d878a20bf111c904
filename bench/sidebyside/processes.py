"""What is read from /proc: the processor time and the memory of a process and of all below it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STOPS_WITHIN = 5.0


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                with contextlib.suppress(OSError):
                    found += [int(word) for word in (thread / "children").read_text().split()]
    return found


def cpu_of(pid: int) -> float:
    """The seconds of processor time that a process, all below it, and all that ended below it have used."""
    return sum(_cpu(one) for one in tree(pid))


def _cpu(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(field) for field in fields[11:15]) / _TICK
    return 0.0


def take_precedence(nice: int) -> None:
    """Run at a priority, with all that is started here: as a session, where the kernel divides by those."""
    if nice != 0:
        with contextlib.suppress(PermissionError):
            os.setsid()
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(nice))


def busy_seconds() -> float:
    """The seconds that all processors of this machine have been busy since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[:8])
    return (user + nice + system + irq + softirq + steal) / _TICK


def memory_of(pid: int) -> list[float]:
    """The resident MiB of a process and of each below it."""
    sizes = []
    for one in tree(pid):
        with contextlib.suppress(OSError):
            sizes.append(int(Path(f"/proc/{one}/statm").read_text().split()[1]) * _PAGE / 2**20)
    return sizes


@contextlib.contextmanager
def started(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a program in a group of its own; end it, and all that it started, at the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,
        )
    below: list[int] = []
    try:
        yield process
        below = tree(process.pid)
    finally:
        below = below or tree(process.pid)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOPS_WITHIN)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answer_of(command: Sequence[str], folder: Path, environment: Mapping[str, str], within: float) -> str:
    """The last line that a program prints; what it complained of, if it failed."""
    done = subprocess.run(  # noqa: S603
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[-3:]} failed: {done.stderr.strip()[-800:]}")
    return done.stdout.strip().splitlines()[-1]
