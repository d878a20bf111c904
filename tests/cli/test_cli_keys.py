"""`windlass keys` and `windlass serve`: what is made, shown and refused."""

import importlib.util
import socket

import pytest
from tests.cli.shell import Shell


def test_a_key_is_made_shown_once_listed_and_revoked(shell: Shell) -> None:
    made = shell("keys", "tasks:app", "create", "--scope", "enqueue", "--scope", "read", "--label", "shop")
    assert made.code == 0
    key = made.out.strip()
    prefix, key_id, secret = key.split("_", 2)
    assert prefix == "windlass"
    assert len(secret) > 40
    listed = shell("keys", "tasks:app")
    assert key_id in listed.out
    assert secret not in listed.out
    (row,) = shell.json("keys", "tasks:app", "list")
    assert (row["id"], row["label"], row["state"]) == (key_id, "shop", "valid")
    assert row["scopes"] == ["enqueue", "read"]
    assert row["queues"] is None
    assert row["expires_at"] is None
    revoked = shell("keys", "tasks:app", "revoke", key_id)
    assert (revoked.code, revoked.out) == (0, f"key {key_id} is revoked\n")
    assert shell("keys", "tasks:app", "revoke", key_id).code == 0, "revoked is revoked"
    (row,) = shell.json("keys", "tasks:app", "list")
    assert row["state"] == "revoked"


def test_a_key_is_bound_and_expires(shell: Shell) -> None:
    shell("keys", "tasks:app")
    (made,) = shell.json(
        "keys",
        "tasks:app",
        "create",
        "--scope",
        "read",
        "--queue",
        "mail",
        "--lane",
        "acme",
        "--expires",
        "1h",
    )
    assert made["expires_at"] is not None
    (row,) = shell.json("keys", "tasks:app", "list")
    assert (row["queues"], row["lanes"]) == (["mail"], ["acme"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "a key needs a scope at least; scopes are: enqueue, read, work, operate"),
        (["--scope", "root"], "root"),
        (["--scope", "read", "--queue", "nowhere"], 'queue "nowhere" is not declared'),
        (["--scope", "work", "--lane", "acme"], "cannot be bound to lanes"),
        (["--scope", "read", "--expires", "soon"], "--expires must be seconds"),
        (["--scope", "read", "--expires", "0"], "longer than nothing"),
        (["--scope", "read", "--label", "a\nb"], "printable"),
    ],
)
def test_a_key_that_cannot_be_made_is_refused(shell: Shell, options: list[str], words: str) -> None:
    shell("keys", "tasks:app")  # makes the file, which is mentioned once
    answer = shell("keys", "tasks:app", "create", *options)
    assert answer.code == 2
    assert words in answer.complaint


def test_a_key_that_is_not_there_is_not_revoked(shell: Shell) -> None:
    shell("keys", "tasks:app")
    answer = shell("keys", "tasks:app", "revoke", "abc")
    assert answer.code == 2
    assert "there is no key 'abc'" in answer.complaint


def test_without_keys_no_other_address_is_served(shell: Shell) -> None:
    answer = shell("serve", "tasks:app", "--host", "0.0.0.0")  # noqa: S104 - that is refused
    assert answer.code == 2
    assert "windlass keys APP create" in answer.complaint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--port", "0"], "--port must be from 1 to 65535"),
        (["--workers", "0"], "--workers must be from 1 to 64"),
        (["--rate", "0"], "--rate must be at least 1"),
    ],
)
def test_options_of_the_server_are_checked(shell: Shell, options: list[str], words: str) -> None:
    answer = shell("serve", "tasks:app", *options)
    assert answer.code == 2
    assert words in answer.complaint


def test_a_port_that_is_taken_is_one_line(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = shell("serve", "tasks:app", "--port", str(port))
        metrics = shell("worker", "tasks:app", "--metrics", f"127.0.0.1:{port}")
    assert answer.code == 2
    fix = "another program listens there; choose another port, or end that program"
    assert answer.complaint == f"cannot listen on 127.0.0.1:{port}: {fix}"
    assert metrics.code == 2
    assert metrics.complaint == f"metrics cannot be served at 127.0.0.1:{port}: {fix}"


def test_a_store_that_lives_in_one_process_is_not_served(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_URL", "memory://")
    answer = shell("serve", "tasks:app")
    assert answer.code == 2
    assert "lives inside one process" in answer.complaint


def test_a_missing_extra_is_one_line_with_a_fix(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "httptools" else found(name, *rest)
    )
    answer = shell("serve", "tasks:app")
    assert answer.code == 2
    assert "pip install 'windlass-queue[serve]'" in answer.complaint
