"""The command: rounds over measures and peers in turns, then medians, a table, the gate and plots."""

import argparse
import compileall
import contextlib
import dataclasses
import datetime as dt
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from sidebyside import report
from sidebyside.measures import MEASURES, Absent, Figures, Size
from sidebyside.peers import BENCH, Peer, all_peers
from sidebyside.processes import take_precedence
from sidebyside.servers import SERVERS, Server

_FAILURES = (RuntimeError, OSError, TimeoutError, ValueError, subprocess.SubprocessError)
Run = dict[tuple[str, str, int, str], list[Figures]]  # store, measure, payload, peer


def main() -> int:
    """Run what was asked for."""
    asked = _arguments()
    results: Run = {}
    take_precedence(asked.nice)
    with snapshot(asked.source) as source:
        _run(asked, source, results)
    medians = {key: _median(figures) for key, figures in results.items() if figures}
    report.write(asked.out, medians, all_peers(), rounds=asked.rounds, quick=asked.quick)
    return 0


@contextlib.contextmanager
def snapshot(source: Path) -> Iterator[Path]:
    """A copy of Windlass as it is now: the tree may be edited while this runs."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-source-") as folder:
        shutil.copytree(source / "windlass", Path(folder) / "windlass")
        compileall.compile_dir(folder, quiet=2)
        yield Path(folder)


def _run(asked: argparse.Namespace, source: Path, results: Run) -> None:
    for store in asked.store:
        chosen = (dataclasses.replace(peer, source=source) for peer in _chosen(asked, store))
        peers = _installed(list(chosen))
        with SERVERS[store]() as server:
            _rounds(asked, server, peers, results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--store", type=names, default=list(SERVERS), help="redis,postgres,sqlite")
    parser.add_argument("--only", type=names, default=list(MEASURES), help=f"of {','.join(MEASURES)}")
    parser.add_argument("--peers", type=names, default=None, help="names, or `gate` (the default) or `all`")
    parser.add_argument("--payload", type=names, default=["200", "1024"], help="bytes: 200,1024")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--source", type=Path, default=BENCH.parent / "src", help="the Windlass to measure")
    parser.add_argument(
        "--nice", type=int, default=0, help="of all that is measured; below 0 on a busy machine"
    )
    parser.add_argument("--quick", action="store_true", help="a quarter of the jobs")
    parser.add_argument("--out", type=Path, default=BENCH / "out" / f"{dt.datetime.now(dt.UTC):%m%d-%H%M%S}")
    asked = parser.parse_args()
    for name in asked.only:
        if name not in MEASURES:
            parser.error(f"there is no measure {name}; there are {', '.join(MEASURES)}")
    return asked


def _chosen(asked: argparse.Namespace, store: str) -> list[Peer]:
    there = [peer for peer in all_peers().values() if store in peer.stores]
    if asked.peers is None or asked.peers == ["gate"]:
        return [peer for peer in there if store in peer.gate or peer.runtime == "windlass"]
    if asked.peers == ["all"]:
        return there
    return [peer for peer in there if peer.name in asked.peers]


def _installed(peers: Sequence[Peer]) -> list[Peer]:
    ready = []
    for peer in peers:
        try:
            peer.install()
        except _FAILURES as error:
            _say(f"SKIPPED {peer.name}: it does not install: {error}")
        else:
            ready.append(peer)
    return ready


def _rounds(asked: argparse.Namespace, server: Server, peers: Sequence[Peer], results: Run) -> None:
    for number in range(1, asked.rounds + 1):
        for measure in asked.only:
            for payload in map(int, asked.payload):
                if payload != int(asked.payload[0]) and measure not in report.BY_PAYLOAD:
                    continue
                size = Size(payload, 0.25 if asked.quick else 1.0)
                for peer in peers:
                    figures = _measured(measure, peer, server, size)
                    if figures is not None:
                        results.setdefault((server.name, measure, payload, peer.name), []).append(figures)
                        told = " ".join(
                            f"{name} {value:.4g}" for name, value in figures.items() if name != "began"
                        )
                        _say(f"{number}  {server.name} {measure} {payload}: {peer.name}: {told}")


def _measured(measure: str, peer: Peer, server: Server, size: Size) -> Figures | None:
    try:
        return MEASURES[measure](peer, server, size)
    except Absent:
        return None
    except _FAILURES as error:
        _say(f"FAILED {measure} of {peer.name}: {error}")
        return None


def _median(figures: Sequence[Figures]) -> Figures:
    return {name: statistics.median(one[name] for one in figures) for name in figures[0]}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
