"""`windlass webhooks`: listed, added and removed; secrets shown and replaced."""

import pytest
from tests.cli.shell import Shell

URL = "https://example.com/hooks/secret-path"


@pytest.fixture
def hooked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """With webhooks."""
    monkeypatch.setenv("WINDLASS_WEBHOOKS", "true")
    shell("queues", "tasks:app")  # which makes the file, and says so
    return shell


def test_webhooks_are_added_listed_and_removed(hooked: Shell) -> None:
    assert "no webhooks" in hooked("webhooks", "tasks:app").err
    added = hooked("webhooks", "tasks:app", "add", "crm", "mail", URL, "--on", "dead")
    assert added.out == 'webhook "crm" sends messages about queue "mail" to https://example.com/…\n'
    (row,) = hooked("webhooks", "tasks:app", "--json").lines
    assert (row["name"], row["url"], row["on"]) == ("crm", "https://example.com/…", ["dead"])
    (row,) = hooked("webhooks", "tasks:app", "list", "--whole", "--json").lines
    assert row["url"] == URL
    assert hooked("webhooks", "tasks:app", "remove", "crm").code == 0
    gone = hooked("webhooks", "tasks:app", "remove", "crm")
    assert (gone.code, gone.err) == (2, 'windlass: there is no webhook "crm"; webhooks: none\n')
    acts = hooked("dead", "tasks:app", "audit", "--json").lines
    assert [act["what"] for act in acts] == ["webhook removed", "webhook set"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("crm", "nope", URL), 'queue "nope" is not declared'),
        (("crm", "mail", "ftp://example.com"), "must be an http or https URL"),
        (("crm", "mail", "https://169.254.169.254/"), "its address is link-local; allow it by webhook_allow"),
        (("no good", "mail", URL), "does not match"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    hooked: Shell, arguments: tuple[str, ...], says: str
) -> None:
    refused = hooked("webhooks", "tasks:app", "add", *arguments)
    assert refused.code == 2
    assert says in refused.err
    assert refused.err.count("\n") == 1


def test_without_webhooks_none_can_be_added(shell: Shell) -> None:
    refused = shell("webhooks", "tasks:app", "add", "crm", "mail", URL)
    assert refused.code == 2
    assert "WINDLASS_WEBHOOKS=true" in refused.err


def test_a_secret_is_shown_and_replaced(hooked: Shell) -> None:
    one = hooked("webhooks", "tasks:app", "secret", URL).out.strip()
    assert one.startswith("whsec_")
    assert hooked("webhooks", "tasks:app", "secret", "https://example.com").out.strip() == one
    assert "the old secrets are valid until" in hooked("webhooks", "tasks:app", "rotate", "--yes").out
    assert hooked("webhooks", "tasks:app", "secret", URL).out.strip() != one


@pytest.mark.parametrize(
    "words",
    [
        ("enqueue", "tasks:app", "windlass.webhook", '{"url": "https://example.com", "event": {}}'),
        ("enqueue", "tasks:app", "windlass.anything", "{}"),
        ("enqueue", "tasks:app", "add", '{"a": 1}', "--queue", "windlass.webhooks"),
        ("schedules", "tasks:app", "create", "s", "windlass.webhook", "--every", "1h"),
        ("control", "tasks:app", "pause", "windlass.webhook"),
    ],
)
def test_what_is_windlass_s_own_is_not_named_on_the_command_line(
    hooked: Shell, words: tuple[str, ...]
) -> None:
    refused = hooked(*words)
    assert refused.code != 0
    assert 'names that begin with "windlass." are reserved' in refused.complaint
    assert hooked.json("jobs", "tasks:app") == []


def test_a_header_that_names_a_url_is_checked(hooked: Shell) -> None:
    for url, why in (("file:///etc/passwd", "http or https URL"), ("https://127.0.0.1/", "loopback")):
        refused = hooked("enqueue", "tasks:app", "add", '{"a": 1}', "--header", f"windlass-callback={url}")
        assert refused.code != 0
        assert why in refused.complaint
        assert "passwd" not in refused.complaint
    taken = hooked("enqueue", "tasks:app", "add", '{"a": 1}', "--header", f"windlass-callback={URL}")
    assert taken.code == 0
