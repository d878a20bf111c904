"""The report as one page: no script, nothing from elsewhere, light or dark as its reader has it."""

from collections.abc import Iterator, Sequence
from html import escape

from windlass.verify.report import CLEAN, Report
from windlass.verify.timeline import Bar, Timeline

WIDTH, LEFT, CURVE, ROW = 960, 190, 120, 16
"""Of the picture: its width, the room for names, the height of a curve and of a row of bars."""
_PLOT = WIDTH - LEFT - 10

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --paper: #fff; --soft: #667; --line: #d9dee5;
  --good: #1a7f4b; --bad: #b3261e; --one: #2563c9; --two: #1a7f4b; --three: #b7791f; --bar: #c2410c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --paper: #12161c; --soft: #98a2b3;
  --line: #2b3440; --good: #4ac68a; --bad: #ff8a80; --one: #7aa8ff; --two: #4ac68a; --three: #e0b057;
  --bar: #fb923c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .25rem .6rem .25rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top; } td.n, th.n { text-align: right;
  font-variant-numeric: tabular-nums; } small, .soft { color: var(--soft); }
.clean { color: var(--good); } .violated { color: var(--bad); font-weight: 600; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 10px system-ui, sans-serif; }
.one { stroke: var(--one); } .two { stroke: var(--two); } .three { stroke: var(--three); }
.curve { fill: none; stroke-width: 1.5; } .grid { stroke: var(--line); } .bar { fill: var(--bar); }
"""


def page(report: Report) -> str:
    """The whole document."""
    good = "clean" if report.verdict == CLEAN else "violated"
    title = f"windlass verify: {report.store}, seed {report.seed}"
    about = (
        f"{report.accepted:,} jobs accepted, {report.runs:,} runs, {sum(report.injected.values())} faults of "
        f"{len(report.injected)} kinds in {report.seconds:,.0f} s, {escape(report.date)}."
    )
    body = [
        f"<h1>{escape(title)}: <span class='{good}'>{escape(report.verdict)}</span></h1>",
        f"<p>{about} <span class='soft'>{escape(report.durability)}</span></p>",
        *(() if report.timeline is None else (picture(report.timeline),)),
        "<h2>Invariants</h2>",
        _invariants(report),
        "<h2>Repeated runs</h2>",
        _counts(report.duplicates, "why", "no run was repeated"),
        "<h2>Faults</h2>",
        _counts(report.injected, "kind", "none"),
        "<h2>Not injected</h2>",
        _table(("kind", "why"), [(name, why) for name, why in report.skipped.items()]),
        "<h2>Settings</h2>",
        _table(("setting", "value"), list(report.settings.items())),
        *(f"<p class='violated'>{escape(trouble)}</p>" for trouble in report.troubles),
    ]
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title>"
        "<meta name='viewport' content='width=device-width'>"
        f"<style>{_STYLE}</style><body>{''.join(body)}</body></html>\n"
    )


def _invariants(report: Report) -> str:
    rows: list[str] = []
    for each in report.invariants:
        mark = "<span class='clean'>holds</span>"
        if each.violations:
            mark = "<span class='violated'>violated</span>"
        elif not each.checked:
            mark = "<span class='soft'>no case</span>"
        examples = "".join(f"<br><small>{escape(example)}</small>" for example in each.examples[:20])
        rows.append(
            f"<tr><td>{mark}<td>{escape(each.name)}{examples}<td class='n'>{each.checked:,}"
            f"<td class='n'>{each.violations:,}</tr>"
        )
    return (
        "<table><tr><th><th>what must hold<th class='n'>checked<th class='n'>violated</tr>"
        f"{''.join(rows)}</table>"
    )


def _counts(counts: dict[str, int], what: str, nothing: str) -> str:
    if not counts:
        return f"<p>{nothing}</p>"
    rows = sorted(counts.items(), key=lambda item: -item[1])
    return _table((what, "count"), [(name, f"{count:,}") for name, count in rows])


def _table(heads: tuple[str, str], rows: Sequence[tuple[str, str]]) -> str:
    body = "".join(f"<tr><td>{escape(one)}<td>{escape(two)}</tr>" for one, two in rows)
    return f"<table><tr><th>{heads[0]}<th>{heads[1]}</tr>{body}</table>"


# --- the picture --------------------------------------------------------------------------------------------


def picture(timeline: Timeline) -> str:
    """Curves above, a row of bars for each kind of fault below."""
    kinds = sorted({bar.kind for bar in timeline.bars})
    top = 2 * (CURVE + 24)
    height = top + ROW * len(kinds) + 24
    parts = [
        *_grid(timeline, height),
        *_curves(timeline),
        *(part for place, kind in enumerate(kinds) for part in _row(timeline, kind, top + ROW * place)),
    ]
    frame = f"viewBox='0 0 {WIDTH} {height}' role='img' aria-label='What happened when'"
    return f"<svg {frame}>{''.join(parts)}</svg>"


def _x(timeline: Timeline, seconds: float) -> float:
    return round(LEFT + _PLOT * seconds / timeline.seconds, 1)


def _grid(timeline: Timeline, height: int) -> Iterator[str]:
    step = next(
        (each for each in (5, 10, 30, 60, 120, 300, 600, 3_600) if timeline.seconds / each <= 14), 7_200
    )
    for second in range(0, int(timeline.seconds) + 1, step):
        x = _x(timeline, second)
        yield f"<line class='grid' x1='{x}' x2='{x}' y1='12' y2='{height - 18}'/>"
        yield f"<text x='{x}' y='{height - 6}' text-anchor='middle'>{_clock(second)}</text>"
    free = 0.0
    for at, name in timeline.phases:
        x = _x(timeline, at)
        place = f"x1='{x}' x2='{x}' y1='8' y2='{height - 18}'"
        yield f"<line {place} stroke='currentColor' stroke-dasharray='3 3'/>"
        # Names never stand on one another: beside its line where there is room, else to the left of the edge.
        start = max(x + 2, free)
        wide = LETTER * len(name)
        if start + wide > WIDTH:
            start = x - wide - 2
        yield f"<text x='{start:.1f}' y='8'>{escape(name)}</text>"
        free = start + wide + LETTER


LETTER = 5.5
"""About how wide a letter is."""


def _clock(second: int) -> str:
    return f"{second // 60}:{second % 60:02}"


def _curves(timeline: Timeline) -> Iterator[str]:
    rates = [*timeline.accepted, *timeline.completed, 1.0]
    most = max(rates)
    for place, (name, points) in enumerate(
        (("accepted", timeline.accepted), ("completed", timeline.completed))
    ):
        places = [(index * timeline.step, value) for index, value in enumerate(points)]
        yield _line(timeline, places, most, 16, ("one", "two")[place])
        yield f"<text class='{('one', 'two')[place]}' x='4' y='{30 + 14 * place}'>{name} a second</text>"
    yield f"<text x='{LEFT - 6}' y='24' text-anchor='end'>{most:,.0f}</text>"
    backlog = [(at, float(count)) for at, count in timeline.backlog]
    most = max((count for _, count in backlog), default=1.0) or 1.0
    yield _line(timeline, backlog, most, CURVE + 32, "three")
    yield f"<text x='4' y='{CURVE + 46}'>unfinished jobs</text>"
    yield f"<text x='{LEFT - 6}' y='{CURVE + 40}' text-anchor='end'>{most:,.0f}</text>"


def _line(timeline: Timeline, places: Sequence[tuple[float, float]], most: float, top: int, name: str) -> str:
    points = " ".join(
        f"{_x(timeline, min(at, timeline.seconds))},{top + CURVE * (1 - value / most):.1f}"
        for at, value in places
    )
    return f"<polyline class='curve {name}' points='{points}'/>"


def _row(timeline: Timeline, kind: str, top: int) -> Iterator[str]:
    yield f"<text x='4' y='{top + 11}'>{escape(kind)}</text>"
    for bar in timeline.bars:
        if bar.kind == kind:
            yield _bar(timeline, bar, top)


def _bar(timeline: Timeline, bar: Bar, top: int) -> str:
    x = _x(timeline, bar.begin)
    width = max(2.0, round(_x(timeline, bar.end) - x, 1))
    told = f"{_clock(int(bar.begin))} {bar.kind}: {bar.target}, {bar.end - bar.begin:.1f} s"
    return (
        f"<rect class='bar' x='{x}' y='{top + 3}' width='{width}' height='{ROW - 6}' rx='2'>"
        f"<title>{escape(told)}</title></rect>"
    )
