"""The tables of a run: markdown to read, JSON to keep."""

import json
from collections.abc import Mapping
from pathlib import Path

from sidebyside import gates, plots
from sidebyside.measures import Figures
from sidebyside.peers import Peer

BY_PAYLOAD = {"drain", "bulk", "single"}  # measured with each payload; the others with the first
Medians = Mapping[tuple[str, str, int, str], Figures]
_COLUMNS = {
    "rate": "jobs/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "client_us": "client µs/job",
    "worker_us": "worker µs/job",
    "server_us": "server µs/job",
    "cpu_us": "CPU µs/job",
    "producer_rate": "produced/s",
    "others_percent": "others' load %",
    "mib_largest": "largest MiB",
    "mib_sum": "sum MiB",
    "processes": "processes",
    "core_percent": "% of a core, all",
    "core_percent_each": "% of a core, each",
    "server_percent": "server, % of a core",
}
GROWTH = ("backlog", "lanes", "sessions", "flight", "history", "fleet")


def write(out: Path, medians: Medians, peers: Mapping[str, Peer], *, rounds: int, quick: bool) -> None:
    """Print the tables and keep them."""
    out.mkdir(parents=True, exist_ok=True)
    payload = min(key[2] for key in medians)
    judged = gates.verdicts(medians, peers, payload)
    text = f"{gates.table(judged)}\n{tables(medians, peers)}"
    head = f"Medians of {rounds} rounds{', a quarter of the jobs' if quick else ''}.\n\n"
    (out / "table.md").write_text(head + text)
    rows = [
        {"store": store, "measure": measure, "payload": payload, "peer": peer, **figures}
        for (store, measure, payload, peer), figures in medians.items()
    ]
    (out / "table.json").write_text(json.dumps(rows, indent=1) + "\n")
    plots.write(out, medians)
    print(f"{head}{text}\nKept in {out}")


def tables(medians: Medians, peers: Mapping[str, Peer]) -> str:
    """A table for each store and measure."""
    lines: list[str] = []
    for store, measure, payload in dict.fromkeys(key[:3] for key in medians):
        rows = {key[3]: figures for key, figures in medians.items() if key[:3] == (store, measure, payload)}
        lines += [f"### {store}: {measure}, {payload} bytes", ""]
        lines += _grown(rows["windlass"]) if measure in GROWTH else _compared(rows, peers)
        lines.append("")
    return "\n".join(lines)


def _compared(rows: Mapping[str, Figures], peers: Mapping[str, Peer]) -> list[str]:
    columns = [name for name in _COLUMNS if any(name in figures for figures in rows.values())]
    own = rows.get("windlass", {}).get("rate")
    titles = [_COLUMNS[name] for name in columns] + (["Windlass is"] if own else [])
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    for name, figures in sorted(rows.items(), key=lambda row: -row[1].get("rate", 0)):
        cells = [_plain(figures.get(column)) for column in columns]
        if own:
            cells.append(f"{own / figures['rate']:.2f} ×" if name != "windlass" else "")
        mark = "" if peers[name].survives else " (not crash safe)"
        lines.append(f"| {name}{mark} | {' | '.join(cells)} |")
    return lines


def _grown(figures: Figures) -> list[str]:
    sizes = list(dict.fromkeys(name.rpartition("_")[2] for name in figures))
    names = list(dict.fromkeys(name.rpartition("_")[0] for name in figures))
    lines = [f"| | {' | '.join(f'{int(size):,}' for size in sizes)} |", f"|---|{'---:|' * len(sizes)}"]
    cells = {name: [_plain(figures.get(f"{name}_{size}")) for size in sizes] for name in names}
    return lines + [f"| {name} | {' | '.join(values)} |" for name, values in cells.items()]


def _plain(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
