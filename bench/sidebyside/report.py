"""The tables of a run: markdown to read, JSON to keep."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from sidebyside import gates, plots
from sidebyside.measures import Figures
from sidebyside.peers import Peer
from sidebyside.results import Medians, Results

BY_PAYLOAD = {"drain", "bulk", "single"}  # measured with each payload; the others with the first
_COLUMNS = {
    "rate": "jobs/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "client_us": "client µs/job",
    "worker_us": "worker µs/job",
    "server_us": "server µs/job",
    "cpu_us": "CPU µs/job",
    "producer_rate": "produced/s",
    "plain_rate": "plain jobs/s",
    "others_percent": "others' load %",
    "busy_to_the_end": "loaded to the end",
    "mib_largest": "largest MiB",
    "mib_sum": "sum MiB",
    "processes": "processes",
    "core_percent": "% of a core, all",
    "core_percent_each": "% of a core, each",
    "server_percent": "server, % of a core",
}
GROWTH = ("backlog", "lanes", "sessions", "flight", "history", "fleet")


def write(out: Path, results: Results, peers: Mapping[str, Peer], head: str, notes: Sequence[str]) -> str:
    """Keep the tables and plots; the tables, to read."""
    out.mkdir(parents=True, exist_ok=True)
    judged, medians = gates.verdicts(results, peers), results.medians
    text = "\n".join(
        [head, "", gates.table(judged), tables(results, peers), *_about(medians, peers), *_left_out(notes)]
    )
    (out / "table.md").write_text(text)
    rows = [
        {"store": store, "measure": measure, "payload": payload, "peer": peer, **figures}
        for (store, measure, payload, peer), figures in medians.items()
    ]
    (out / "table.json").write_text(json.dumps(rows, indent=1) + "\n")
    plots.write(out, medians, peers)
    return text


def _about(medians: Medians, peers: Mapping[str, Peer]) -> list[str]:
    """At which settings everybody ran, and what a crash does to what it had."""
    lines = ["### Settings", "", "| | settings | a job of a worker that `kill -9` ended |", "|---|---|---|"]
    rows = [peers[name] for name in sorted({key[3] for key in medians})]
    return [*lines, *(f"| {row.title} | {row.settings} | {row.after_kill} |" for row in rows), ""]


def _left_out(notes: Sequence[str]) -> list[str]:
    return ["### Not measured", "", *(f"- {note}" for note in notes), ""] if notes else []


def tables(results: Results, peers: Mapping[str, Peer]) -> str:
    """A table for each store and measure."""
    lines: list[str] = []
    medians = results.medians
    for what in dict.fromkeys(key[:3] for key in medians):
        store, measure, payload = what
        rows = {key[3]: figures for key, figures in medians.items() if key[:3] == what}
        lines += [f"### {store}: {measure}, {payload} bytes", ""]
        if measure in GROWTH:
            lines += _grown(rows["windlass"])
        else:
            own = (*what, "windlass"), "rate"
            ratios = {
                name: results.ratio(own, ((*what, name), "rate")) for name in rows if name != "windlass"
            }
            lines += _compared(rows, ratios, peers)
        lines.append("")
    return "\n".join(lines)


def _compared(
    rows: Mapping[str, Figures], ratios: Mapping[str, float | None], peers: Mapping[str, Peer]
) -> list[str]:
    columns = [name for name in _COLUMNS if any(name in figures for figures in rows.values())]
    titles = [_COLUMNS[name] for name in columns] + (["Windlass is"] if "rate" in columns else [])
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    for name, figures in sorted(rows.items(), key=lambda row: -row[1].get("rate", 0)):
        cells = [_plain(figures.get(column)) for column in columns]
        if "rate" in columns:
            ratio = ratios.get(name)
            cells.append("" if ratio is None else f"{ratio:.2f} ×")
        lines.append(f"| {peers[name].title} | {' | '.join(cells)} |")
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
