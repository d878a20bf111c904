"""The command: rounds over measures and peers in turns, then medians, a table, the gate and plots."""

import argparse
import compileall
import contextlib
import dataclasses
import datetime as dt
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from sidebyside import report
from sidebyside.measures import MEASURES, Absent, Size
from sidebyside.peers import BENCH, Peer, all_peers
from sidebyside.processes import take_precedence
from sidebyside.results import Results
from sidebyside.servers import SERVERS, Server

_INSTALL_FAILURES = (RuntimeError, OSError, ImportError, ValueError, subprocess.SubprocessError)
_TURNS = {"single": 3, "bulk": 3, "drain": 3, "drain_lanes": 2}
"""How often a round takes a peer, if not once. Of `single` and `bulk` each call waits for the disk, and for
seconds at a time disks take ten times as long as before; a drain may take less than a second.
"""


class Run:
    """What was asked for, what has been measured, and what could not be."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.results = Results()
        self.notes: list[str] = []

    def everything(self, source: Path) -> None:
        """One store after the other; a store that does not start is left out, aloud."""
        for store in self.asked.store:
            chosen = [dataclasses.replace(peer, source=source) for peer in _chosen(self.asked.peers, store)]
            peers = [peer for peer in chosen if self.is_installed(peer)]
            with contextlib.ExitStack() as stack:
                try:
                    server = stack.enter_context(SERVERS[store]())
                except _INSTALL_FAILURES as error:
                    self._note(f"SKIPPED {store}: it does not start: {error}")
                else:
                    self._rounds(server, [peer for peer in peers if self._suits(peer, server)])

    def is_installed(self, peer: Peer) -> bool:
        """Install a peer; one that cannot be is left out with a note."""
        try:
            peer.install()
        except _INSTALL_FAILURES as error:
            self._note(f"SKIPPED {peer.name}: it does not install: {error}")
            return False
        return True

    def _suits(self, peer: Peer, server: Server) -> bool:
        least = peer.at_least.get(server.name, 0)
        if server.version >= least:
            return True
        needs = f"it needs {server.name} {least}, this is {server.version}"
        self._note(f"SKIPPED {peer.name}: {needs}; name a program by $BENCH_{server.name.upper()}")
        return False

    def _rounds(self, server: Server, peers: Sequence[Peer]) -> None:
        for number in range(self.asked.rounds):
            first = number % max(1, len(peers))  # nobody is always the first, or always after the same one
            turns = [*peers[first:], *peers[:first]]
            for measure in self.asked.only:
                for payload in self.asked.payload:
                    if payload == self.asked.payload[0] or measure in report.BY_PAYLOAD:
                        self._round(number, measure, payload, server, turns)
            self.keep()

    def _round(self, number: int, measure: str, payload: int, server: Server, peers: Sequence[Peer]) -> None:
        size = Size(payload, 0.25 if self.asked.quick else 1.0)
        for turn in range(_TURNS.get(measure, 1)):
            first = turn % max(1, len(peers))
            for peer in (*peers[first:], *peers[:first]):
                try:
                    figures = MEASURES[measure](peer, server, size)
                except Absent:
                    continue
                except Exception as error:  # noqa: BLE001 - a peer's failure, whatever it is, costs its own row only
                    self._note(f"FAILED {server.name} {measure} {payload} of {peer.name}: {error}")
                    continue
                key = (server.name, measure, payload, peer.name)
                self.results.add(key, (number, turn), figures)
                told = " ".join(f"{name} {value:.4g}" for name, value in figures.items() if name != "began")
                _say(f"{number + 1}  {server.name} {measure} {payload}: {peer.name}: {told}")

    def keep(self) -> str:
        """Write what there is so far; the tables, to read."""
        head = f"Medians of {self.results.said()}{', of a quarter of the jobs' * self.asked.quick}."
        head += " A ratio is the median of those of the turns, in which all ran one after the other."
        return (
            report.write(self.asked.out, self.results, all_peers(), head, self.notes) if self.results else ""
        )

    def _note(self, line: str) -> None:
        self.notes.append(line.splitlines()[0])
        _say(line)


def main() -> int:
    """Run what was asked for."""
    run = Run(_arguments())
    take_precedence(run.asked.nice)
    try:
        with snapshot(run.asked.source) as source:
            run.everything(source)
    except KeyboardInterrupt:
        _say("interrupted: these are the measures so far")
    text = run.keep()
    print(f"{text}\nKept in {run.asked.out}" if text else "nothing was measured")
    return 0 if text else 1


@contextlib.contextmanager
def snapshot(source: Path) -> Iterator[Path]:
    """A copy of Windlass as it is now: the tree may be edited while this runs."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-source-") as folder:
        shutil.copytree(source / "windlass", Path(folder) / "windlass")
        compileall.compile_dir(folder, quiet=2)
        yield Path(folder)


def _arguments() -> argparse.Namespace:
    there = all_peers()
    gate = [name for name, peer in there.items() if peer.gate]
    parser = argparse.ArgumentParser(
        prog="make bench",
        description=__doc__,
        epilog=_measures_explained(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument(
        "--store", type=names, default=list(SERVERS), help=f"of {', '.join(SERVERS)}; by default all"
    )
    parser.add_argument(
        "--only", type=names, default=list(MEASURES), help="of the measures below; by default all"
    )
    parser.add_argument(
        "--peers",
        type=names,
        default=["gate"],
        help=f"beside Windlass: `gate` (those to be measured against, the default: {', '.join(gate)}), "
        f"`all`, `none`, or names of {', '.join(name for name in there if name != 'windlass')}; "
        "one that does not install, as for want of Node, Ruby or Go, is skipped with a line that says so",
    )
    parser.add_argument(
        "--payload",
        type=lambda text: [int(word) for word in text.split(",")],
        default=[200, 1024],
        help="bytes; all but the first for drain, bulk and single only (200,1024)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="of which the medians are shown; a row passes if one round passes it (3)",
    )
    parser.add_argument("--source", type=Path, default=BENCH.parent / "src", help="the Windlass to measure")
    parser.add_argument(
        "--nice", type=int, default=0, help="of all that is measured; below 0 on a busy machine"
    )
    parser.add_argument("--quick", action="store_true", help="a quarter of the jobs, and less growth")
    parser.add_argument(
        "--out",
        type=Path,
        default=BENCH / "out" / f"{dt.datetime.now(dt.UTC):%m%d-%H%M%S}",
        help="where tables and plots are kept (bench/out/MMDD-HHMMSS)",
    )
    asked = parser.parse_args()
    for option, known in (
        ("store", list(SERVERS)),
        ("only", list(MEASURES)),
        ("peers", ["gate", "all", "none", *there]),
    ):
        for name in getattr(asked, option):
            if name not in known:
                parser.error(f"--{option}: there is no {name!r}; there are {', '.join(known)}")
    return asked


def _measures_explained() -> str:
    lines = ["measures:"]
    for name, measure in MEASURES.items():
        told = " ".join((measure.__doc__ or "").split())
        lines += textwrap.wrap(f"{name:<19} {told}", 100, initial_indent="  ", subsequent_indent=" " * 22)
    lines += ["", "`drain_def` is compared with the peers' `drain`: ask for both, --only drain,drain_def."]
    return "\n".join(lines)


def _chosen(asked: Sequence[str], store: str) -> list[Peer]:
    """Windlass always, as every figure is compared with its own, and what else was asked for."""
    return [
        peer
        for name, peer in all_peers().items()
        if store in peer.stores
        and (
            name == "windlass"
            or name in asked
            or "all" in asked
            or ("gate" in asked and (store in peer.gate or peer.runtime == "windlass"))
        )
    ]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
