"""`windlass top`: the overview in the terminal."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import msgspec
from rich.console import Console
from tests.cli.shell import Shell

from windlass.admin.overview import Overview, SchedulesGlance, Trouble, WorkersGlance
from windlass.admin.views import QueueShown
from windlass.cli.top import Pace, picture


def test_top_once_tells_problems_first_then_states_workers_and_queues(shell: Shell) -> None:
    shell.task("send").enqueue("a")
    lines = [line.rstrip() for line in shell("top", "tasks:app", "--once").out.splitlines()]
    problem = next(index for index, line in enumerate(lines) if line.startswith("problem"))
    assert "mail: 1 job ready, and no live worker serves it" in lines[problem]
    states = next(index for index, line in enumerate(lines) if line.startswith("1 ready"))
    assert states > problem
    assert lines[states + 1].startswith("0 workers, 0 of 0 slots in use")
    assert lines[states + 3].split()[:5] == ["queue", "ready", "running", "later", "dead"]
    assert lines[states + 4].split()[:5] == ["mail", "1", "0", "0", "0"]


def test_top_as_json_is_the_overview(shell: Shell) -> None:
    shell.task("send").enqueue("a")
    (told,) = shell.json("top", "tasks:app", "--once")
    assert told["jobs"]["ready"] == 1
    assert [problem["kind"] for problem in told["problems"]] == ["unserved"]


def test_top_refuses_to_look_all_the_time(shell: Shell) -> None:
    assert "--every must be at least 0.2 s, not 0.01" in shell("top", "tasks:app", "--every", "0.01").err


def test_ends_per_second_are_those_between_two_looks() -> None:
    first = overview(done=10)
    later = msgspec.structs.replace(overview(done=25), now=first.now + timedelta(seconds=3))
    pace = Pace()
    assert pace.rates(first) == {}
    assert pace.rates(later) == {"mail": 5.0}


def test_a_picture_fits_its_screen_and_obeys_no_control_characters() -> None:
    problems = tuple(
        Trouble(kind="old", level="warning", queue=None, text=f"\x1b[31mtrouble {number}\n")
        for number in range(50)
    )
    console = Console(
        width=80, height=24, record=True, force_terminal=True, color_system=None, file=StringIO()
    )
    console.print(picture(msgspec.structs.replace(overview(), problems=problems), {}, height=24))
    text = console.export_text()
    assert len(text.splitlines()) <= 24
    assert "\\x1b[31mtrouble 0" in text
    assert "and 44 more" in text


def overview(done: int = 0) -> Overview:
    states = ("blocked", "scheduled", "ready", "running", "done", "dead", "cancelled")
    jobs = {**dict.fromkeys(states, 0), "done": done}
    queues = tuple(
        QueueShown(
            name=name, jobs=jobs, oldest=None, paused=False, settings={}, declared={}, override={}, app="",
            revision=0, version=1,
        )
        for name in ("mail", *(f"queue-{number}" for number in range(40 if not done else 0)))
    )  # fmt: skip
    return Overview(
        now=datetime(2030, 1, 1, tzinfo=UTC),
        app="shop",
        namespace="windlass",
        store="sqlite",
        durability="",
        version="1",
        jobs=jobs,
        queues=queues,
        workers=WorkersGlance(alive=0, slots=0, busy=0, crashed=0),
        schedules=SchedulesGlance(total=0, paused=0, next_at=None, next_name=None),
        alerts=(),
        problems=(),
    )
