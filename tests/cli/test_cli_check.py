"""`windlass check`: an exit code for monitors."""

from tests.cli.shell import Shell


def test_thresholds_given_by_hand(shell: Shell) -> None:
    shell.task("send").enqueue("a")
    assert shell("check", "tasks:app", "--depth", "1").code == 0
    answer = shell("check", "tasks:app", "--depth", "0", "--queue", "mail")
    assert answer.code == 1
    assert answer.out.splitlines()[1].split() == [
        *("(asked)", "raised", "mail", "1", "ready", "jobs", "(over", "0)")
    ]
    assert shell("check", "tasks:app", "--depth", "0", "--queue", "default").code == 0
    assert shell("check", "tasks:app", "--dead", "0", "--oldest", "1h").code == 0
    assert shell.die()
    (line,) = shell("check", "tasks:app", "--dead", "0", "--json").lines
    assert (line["state"], line["why"]) == ("raised", "1 dead letters (over 0)")
    (line,) = shell("check", "tasks:app", "--dead", "0", "--task", "nobody", "--json").lines
    assert (line["state"], line["task"]) == ("ok", "nobody")
    assert (
        "says nothing of one task" in shell("check", "tasks:app", "--oldest", "1h", "--task", "x").complaint
    )


def test_alerts_of_the_code(shell: Shell) -> None:
    shell.write(
        "tasks.py", (shell.folder / "tasks.py").read_text() + '\napp.alert("mail", queue="mail", depth=1)\n'
    )
    shell.task("send").enqueue("a")
    assert shell("check", "tasks:app").code == 0
    shell.app.enqueue_many(shell.task("send").call("b") for _ in range(2))
    answer = shell("check", "tasks:app")
    assert (answer.code, "raised" in answer.out) == (1, True)
    assert shell("check", "tasks:app", "--queue", "default").code == 0


def test_nothing_to_look_at(shell: Shell) -> None:
    shell("queues", "tasks:app")
    answer = shell("check", "tasks:app")
    assert (answer.code, answer.out) == (0, "")
    assert "no alert is declared" in answer.err
    assert "not declared" in shell("check", "tasks:app", "--queue", "nope", "--depth", "1").complaint
