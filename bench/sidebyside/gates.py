"""What Windlass is to reach: ratios within one run, which are the gate, and other figures, which are aims:
absolute ones say as much of the machine.

Each round is judged by itself, and a row passes if one round passes it: what others do on a machine makes a
round fail more often than the program does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sidebyside.peers import Peer
from sidebyside.results import Key, Medians, Results

STORES = ("redis", "postgres", "sqlite")


@dataclass(frozen=True)
class Verdict:
    """A row of the gate for one store."""

    row: str
    store: str
    needed: str
    reached: str
    passed: bool | None  # None: reported, and not judged
    is_aim: bool = False
    rounds: tuple[int, int] = (0, 0)  # that passed, of those that had figures for it


@dataclass(frozen=True)
class Run:
    """The figures of one store."""

    store: str
    results: Results
    medians: Medians
    peers: Mapping[str, Peer]
    payload: int

    def key(self, peer: str, measure: str) -> Key:
        """Where the figures of a peer are."""
        return self.store, measure, self.payload, peer

    def own(self, measure: str, figure: str) -> float | None:
        """A figure of Windlass."""
        return self.of("windlass", measure, figure)

    def of(self, peer: str, measure: str, figure: str) -> float | None:
        """A figure of anybody."""
        return self.medians.get(self.key(peer, measure), {}).get(figure)

    def ratio(self, measure: str, peer: str, against: str) -> float | None:
        """The rate of Windlass in units of another's, by turns."""
        own, other = self.key("windlass", measure), self.key(peer, against)
        return self.results.ratio((own, "rate"), (other, "rate"))

    def best(self, measure: str, against: str) -> tuple[float, str] | None:
        """The least ratio to one of the gate peers, and whose it is."""
        ratios = [
            (ratio, name)
            for name, peer in self.peers.items()
            if self.store in peer.gate and (ratio := self.ratio(measure, name, against)) is not None
        ]
        return min(ratios, default=None)


def verdicts(results: Results, peers: Mapping[str, Peer]) -> list[Verdict]:
    """Every row that this run can judge; with all but the smallest payload a row is an aim."""
    payloads = sorted({key[2] for key in results.medians})
    rounds = results.rounds()
    return [
        verdict if payload == payloads[0] else _aimed_at(verdict, payload)
        for rule in _RULES
        for payload in payloads
        for store in STORES
        for verdict in _judged(
            rule,
            Run(store, results, results.medians, peers, payload),
            [Run(store, some, some.medians, peers, payload) for some in rounds],
        )
    ]


def _judged(rule: "Rule", run: Run, rounds: Sequence[Run]) -> Iterator[Verdict]:
    """What a rule says of all turns together; whether it is passed is for single rounds to say."""
    for verdict in rule(run):
        if verdict.passed is None or verdict.is_aim:
            yield verdict
            continue
        found = [one.passed for some in rounds for one in rule(some) if one.row == verdict.row]
        yield replace(verdict, passed=any(found), rounds=(found.count(True), len(found)))


def _aimed_at(verdict: Verdict, payload: int) -> Verdict:
    needed = verdict.needed if verdict.is_aim or verdict.passed is None else f"aim {verdict.needed}"
    row = f"{verdict.row}, {payload} bytes"
    return replace(verdict, row=row, needed=needed, is_aim=True, rounds=(0, 0))


Rule = Callable[[Run], Iterator[Verdict]]


def _ratio(
    row: str, measure: str, against: str, needed: Mapping[str, float], aims: Mapping[str, str]
) -> Rule:
    def rule(run: Run) -> Iterator[Verdict]:
        rate, best = run.own(measure, "rate"), run.best(measure, against)
        if rate is None:
            return
        aim = f"aim {aims[run.store]}" if run.store in aims else ""
        factor = needed.get(run.store)
        if factor is None:
            if aim:
                yield Verdict(row, run.store, aim, f"{rate:,.0f}/s", None)
            return
        wanted = f"≥ {factor:g} × best{aim and f' ({aim})'}"
        if best is None:
            said = f"{rate:,.0f}/s; `{against}` of a peer that counts was not measured"
            yield Verdict(row, run.store, wanted, said, None)
        else:
            ratio, name = best
            said = f"{rate:,.0f}/s = {ratio:.2f} × {name} ({run.of(name, against, 'rate'):,.0f}/s)"
            yield Verdict(row, run.store, wanted, said, ratio >= factor)

    return rule


def _bound(row: str, measure: str, figure: str, most: Mapping[str, float], unit: str) -> Rule:
    def rule(run: Run) -> Iterator[Verdict]:
        value = run.own(measure, figure)
        if value is not None:
            bound = most[run.store]
            needed = f"aim ≤ {bound:g} {unit}"
            yield Verdict(row, run.store, needed, f"{value:.3g} {unit}", value <= bound, is_aim=True)

    return rule


def _singles(run: Run) -> Iterator[Verdict]:
    """A drain of jobs that were enqueued one at a time, beside the one that was filled in bulk."""
    rate, best = run.own("drain_singles", "rate"), run.best("drain_singles", "drain_singles")
    if rate is None:
        return
    said = [f"{rate:,.0f}/s"]
    if best is not None:
        ratio, name = best
        said.append(f"{ratio:.2f} × {name} ({run.of(name, 'drain_singles', 'rate'):,.0f}/s)")
    in_bulk = run.ratio("drain_singles", "windlass", "drain")
    if in_bulk is not None:
        said.append(f"{in_bulk:.2f} × filled in bulk ({run.own('drain', 'rate'):,.0f}/s)")
    row = "drain of jobs enqueued one at a time"
    yield Verdict(row, run.store, "reported", " = ".join(said), None)


def _bare(run: Run) -> Iterator[Verdict]:
    ratio = run.ratio("single", "bare", "single")
    if ratio is not None:
        rate, bare = run.own("single", "rate"), run.of("bare", "single", "rate")
        said = f"{rate:,.0f}/s = {ratio:.2f} × {bare:,.0f}/s"
        row, needed = "one blocking enqueue at a time", "≥ 0.5 × bare insert"
        yield Verdict(row, run.store, needed, said, ratio >= 0.5)


def _lanes(run: Run) -> Iterator[Verdict]:
    least = {"redis": 0.45, "postgres": 0.3, "sqlite": 0.35}[run.store]
    row = "drain, 1,000 lanes with limits"
    for measure, name, is_aim in (
        ("drain_lanes", row, False),
        ("drain_lanes_random", f"{row}, jobs at random", True),
    ):
        key = run.key("windlass", measure)
        ratio = run.results.ratio((key, "rate"), (key, "plain_rate"))
        if ratio is not None:
            rate, plain = run.own(measure, "rate"), run.own(measure, "plain_rate")
            needed = f"{'aim ' if is_aim else ''}≥ {least:.2f} × plain"
            said = f"{rate:,.0f}/s = {ratio:.2f} × {plain:,.0f}/s"
            yield Verdict(name, run.store, needed, said, ratio >= least, is_aim=is_aim)


def _backlog(run: Run) -> Iterator[Verdict]:
    key, few, many = run.key("windlass", "backlog"), "p99_ms_1000", "p99_ms_1000000"
    ratio = run.results.ratio((key, many), (key, few))
    if ratio is not None:
        said = f"{run.own('backlog', many):.2f} ms = {ratio:.2f} × {run.own('backlog', few):.2f} ms"
        row, needed = "claim p99, 1,000,000 waiting against 1,000", "aim ≤ 2 ×"
        yield Verdict(row, run.store, needed, said, ratio <= 2, is_aim=True)


def _everywhere(value: float) -> Mapping[str, float]:
    return dict.fromkeys(STORES, value)


_RULES: tuple[Rule, ...] = (
    _ratio(
        "drain, no-op async def",
        "drain",
        "drain",
        {"redis": 3.5, "postgres": 1, "sqlite": 10},
        {"redis": "60,000/s", "postgres": "1.2 ×", "sqlite": "50,000/s"},
    ),
    _singles,
    _bound(
        "CPU per job, workers + server", "drain", "cpu_us", {"redis": 30, "postgres": 50, "sqlite": 30}, "µs"
    ),
    _ratio(
        "drain, no-op def in threads",
        "drain_def",
        "drain",
        {"redis": 2, "postgres": 0.8, "sqlite": 5},
        {"redis": "30,000/s"},
    ),
    _ratio(
        "bulk enqueue",
        "bulk",
        "bulk",
        {"redis": 3, "postgres": 1.5},
        {"redis": "120,000/s", "postgres": "100,000/s", "sqlite": "100,000/s"},
    ),
    _ratio("one blocking enqueue at a time", "single", "single", {"redis": 0.9, "postgres": 0.9}, {}),
    _bare,
    lambda run: (
        _bound("one blocking enqueue, p99", "single", "p99_ms", {"redis": 1}, "ms")(run)
        if run.store == "redis"
        else iter(())
    ),
    _ratio(
        "100 concurrent aenqueue",
        "concurrent",
        "concurrent",
        {},
        {"redis": "50,000/s", "postgres": "40,000/s", "sqlite": "50,000/s"},
    ),
    _bound(
        "enqueue to start, idle, p50", "pickup", "p50_ms", {"redis": 1.2, "postgres": 3, "sqlite": 3}, "ms"
    ),
    _bound(
        "enqueue to start, idle, p99", "pickup", "p99_ms", {"redis": 2.5, "postgres": 5, "sqlite": 6}, "ms"
    ),
    _bound("high priority under load, p99", "urgent", "p99_ms", _everywhere(150), "ms"),
    _lanes,
    _backlog,
    _bound("idle worker process, memory", "idle", "mib_largest", _everywhere(60), "MiB"),
    _bound("idle worker process, CPU", "idle", "core_percent_each", _everywhere(0.5), "% of a core"),
)


def table(found: list[Verdict]) -> str:
    """The gate, to read."""
    lines = ["| | store | to reach | reached | |", "|---|---|---|---|---|"]
    gate, aim = {True: "pass", False: "**FAIL**", None: ""}, {True: "reached", False: "**missed**", None: ""}
    for one in found:
        reached = f"**{one.reached}**" if one.passed is False else one.reached
        word = (aim if one.is_aim else gate)[one.passed]
        if one.rounds[1] > 1:
            word += f" ({one.rounds[0]} of {one.rounds[1]} rounds)"
        lines.append(f"| {one.row} | {one.store} | {one.needed} | {reached} | {word} |")
    return "\n".join(lines) + "\n"
