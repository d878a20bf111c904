"""Plots as SVG, written by hand: bars of a measure side by side, and lines of what grows."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from sidebyside.measures import Figures
from sidebyside.peers import Peer
from sidebyside.results import Medians

_WIDTH, _BAR, _LEFT, _RIGHT, _TOP = 720, 26, 220, 90, 44
_OWN, _OTHER, _UNSAFE, _INK, _FAINT = "#1f6feb", "#9aa4b2", "#d8dee4", "#24292f", "#d0d7de"
_LINES = ("#1f6feb", "#d1572b", "#2da44e", "#8250df")
_PLOTTED = {
    "drain": ("rate",),
    "drain_singles": ("rate",),
    "drain_def": ("rate",),
    "bulk": ("rate",),
    "single": ("rate", "p99_ms"),
    "concurrent": ("rate",),
    "both": ("rate",),
    "pickup": ("p50_ms", "p99_ms"),
    "idle": ("mib_largest", "core_percent_each"),
}
_UNITS = {
    "rate": "jobs per second",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "cpu_us": "CPU µs per job, workers + server",
    "mib_largest": "MiB of the largest process",
    "core_percent_each": "% of a core, each process",
}
_SUFFIXES = {"p99_ms": "-p99", "core_percent_each": "-cpu"}
_GROWTH = ("backlog", "lanes", "sessions", "flight", "history", "fleet")


def write(out: Path, medians: Medians, peers: Mapping[str, Peer]) -> None:
    """A file for each plot."""
    for store, measure, payload in dict.fromkeys(key[:3] for key in medians):
        rows = {key[3]: figures for key, figures in medians.items() if key[:3] == (store, measure, payload)}
        name = f"{store}-{measure}-{payload}"
        if measure in _GROWTH:
            (out / f"{name}.svg").write_text(lines(f"{store}: {measure}", rows["windlass"]))
            continue
        title = f"{store}: {measure}, {payload} bytes"
        for figure in _PLOTTED.get(measure, ()):
            path = out / f"{name}{_SUFFIXES.get(figure, '')}.svg"
            path.write_text(bars(title, figure, rows, peers))
        if measure == "drain":
            (out / f"{name}-cpu.svg").write_text(bars(title, "cpu_us", rows, peers))


def bars(title: str, figure: str, rows: Mapping[str, Figures], peers: Mapping[str, Peer]) -> str:
    """A bar for each peer."""
    ordered = sorted(((figures[figure], name) for name, figures in rows.items()), reverse=True)
    most = ordered[0][0] or 1.0
    parts = []
    for index, (value, name) in enumerate(ordered):
        top = _TOP + index * (_BAR + 8)
        width = value / most * (_WIDTH - _LEFT - _RIGHT)
        colour = _OWN if name == "windlass" else _OTHER if peers[name].survives else _UNSAFE
        parts += [
            _text(_LEFT - 8, top + 18, peers[name].title, anchor="end"),
            f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR}" rx="3" fill="{colour}"/>',
            _text(_LEFT + width + 8, top + 18, _short(value)),
        ]
    return _svg(f"{title} ({_UNITS[figure]})", _TOP + len(ordered) * (_BAR + 8) + 8, parts)


def lines(title: str, figures: Figures) -> str:
    """A line for each figure, over sizes that grow by powers of ten; from zero, so that flat looks flat."""
    sizes = [int(size) for size in dict.fromkeys(name.rpartition("_")[2] for name in figures)]
    names = list(dict.fromkeys(name.rpartition("_")[0] for name in figures))
    height, parts = 240, []
    for place, size in enumerate(sizes):
        across = _across(place, len(sizes))
        parts.append(_text(across, _TOP + height + 18, f"{size:,}", anchor="middle"))
        parts.append(f'<path d="M{across:.0f} {_TOP}V{_TOP + height}" stroke="{_FAINT}"/>')
    for index, name in enumerate(names):
        values = [figures[f"{name}_{size}"] for size in sizes]
        most = max(values) or 1.0
        points = [
            f"{_across(place, len(sizes)):.0f},{_TOP + height - value / most * height * 0.9:.0f}"
            for place, value in enumerate(values)
        ]
        colour = _LINES[index % len(_LINES)]
        parts.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        said = f"{name}: {', '.join(map(_short, values))}"
        parts.append(_text(60, _TOP + height + 42 + index * 18, said, colour=colour))
    return _svg(
        f"{title} (each line on a scale of its own, from zero)", _TOP + height + 60 + len(names) * 18, parts
    )


def _across(place: int, places: int) -> float:
    return 60 + (_WIDTH - 120) * place / max(1, places - 1)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.{max(0, 2 - math.floor(math.log10(value or 1)))}f}"


def _text(across: float, down: float, text: str, *, anchor: str = "start", colour: str = _INK) -> str:
    return (
        f'<text x="{across:.0f}" y="{down:.0f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
    )


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'font-family="sans-serif" font-size="14">\n<rect width="100%" height="100%" fill="#fff"/>\n'
    )
    heading = f'<text x="16" y="26" font-size="16" font-weight="bold" fill="{_INK}">{escape(title)}</text>'
    return head + "\n".join([heading, *parts]) + "\n</svg>\n"
