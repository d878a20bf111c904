"""Unique by arguments: the key of a job is made of them, whichever way the call comes."""

import dataclasses
import datetime as dt
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pytest

from windlass import Depends, Secret, Unique, Windlass, chain, current, group
from windlass.admin.enqueueing import Accepted, Enqueueing
from windlass.core.unique import WITHOUT_ARGUMENTS, UniqueKeys
from windlass.errors import InvalidOption
from windlass.testing import testing


def key_of(task: Any, *args: Any, **kwargs: Any) -> str:
    key = task.call(*args, **kwargs).job.key
    assert key is not None
    return key


@dataclasses.dataclass
class Place:
    town: str
    at: Path = Path("/")


class Customer(pydantic.BaseModel):
    id: int
    password: pydantic.SecretStr | None = None


def test_the_named_arguments_count_and_no_other(app: Windlass) -> None:
    @app.task(unique=Unique("user"))
    def sync(user: int, note: str = "") -> None: ...

    first = sync.enqueue(1, "a")
    second = sync.enqueue(user=1, note="b")
    other = sync.enqueue(2, "a")
    assert (second.id, second.created, other.created) == (first.id, False, True)
    assert key_of(sync, 1) == "user=1"


def test_without_names_all_count_with_the_defaults_of_the_code(app: Windlass) -> None:
    @app.task(unique=Unique())
    def sync(user: int, ratio: float = 1, *rest: str, deep: bool = False, **more: int) -> None: ...

    assert key_of(sync, 1) == "user=1,ratio=1.0,rest=[],deep=false,more={}"
    assert key_of(sync, 1, 1.0) == key_of(sync, 1, ratio=1) == key_of(sync, 1, deep=False) == key_of(sync, 1)
    assert key_of(sync, 1, 2.0, "a", z=1, y=2) == 'user=1,ratio=2.0,rest=["a"],deep=false,more={"y":2,"z":1}'


def test_equal_values_have_one_key_however_they_are_written(app: Windlass) -> None:
    @app.task(unique=Unique("tags", "place", "by", "customer"))
    def sync(
        tags: set[str],
        place: Place,
        by: dict[str, int],
        customer: Customer | None = None,
        on: dt.date | None = None,
    ) -> None: ...

    one = key_of(sync, {"a", "b"}, Place("x"), {"p": 1, "q": 2})
    assert one == key_of(sync, {"b", "a"}, Place("x"), {"q": 2, "p": 1}, on=dt.date(2030, 1, 31))
    assert one != key_of(sync, {"a"}, Place("x"), {"p": 1, "q": 2})
    payload = sync.signature.encode_json(
        b'{"by": {"q": 2, "p": 1}, "place": {"at": "/", "town": "x"}, "tags": ["b","a"], "customer": null}'
    )
    assert sync.options.unique is not None
    assert sync.options.unique.of(payload) == one


def test_a_long_key_is_a_digest(app: Windlass) -> None:
    @app.task(unique=Unique())
    def sync(text: str) -> None: ...

    keys = [key_of(sync, text) for text in ("x" * 1_000, "x" * 1_001, "ä" * 100, "a\u2028b")]
    assert len(set(keys)) == 4
    assert all(key.startswith("sha256:") and len(key) == 71 for key in keys)
    assert key_of(sync, "short\n") == 'text="short\\n"'


def test_dependencies_are_no_arguments(app: Windlass) -> None:
    def pool() -> int:
        return 1

    @app.task(unique=Unique())
    def sync(user: int, db: int = Depends(pool)) -> None: ...

    assert key_of(sync, 1) == "user=1"
    with pytest.raises(InvalidOption, match='unique= names "db"'):

        @app.task(unique=Unique("db"))
        def other(user: int, db: int = Depends(pool)) -> None: ...


def test_a_task_without_arguments_has_one_key(app: Windlass) -> None:
    @app.task(unique=Unique(window="1h"))
    def tidy() -> None: ...

    assert key_of(tidy) == WITHOUT_ARGUMENTS
    assert tidy.call().job.window == 3_600_000_000


def test_secrets_are_in_no_key(app: Windlass) -> None:
    for names in (("token",), ()):
        with pytest.raises(InvalidOption, match='argument "token" is a secret, and every operator can read'):

            @app.task(unique=Unique(*names))
            def login(user: int, token: str) -> None: ...

    with pytest.raises(InvalidOption, match='argument "note" is a secret'):

        @app.task(unique=Unique("note"))
        def tell(note: Annotated[str, Secret]) -> None: ...

    @app.task(unique=Unique("customer"))
    def sync(customer: Customer) -> None: ...

    assert key_of(sync, Customer(id=1)) == 'customer={"id":1,"password":null}'
    hidden = key_of(sync, Customer(id=1, password=pydantic.SecretStr("1234")))
    assert hidden.startswith("sha256:")
    assert hidden == key_of(sync, Customer(id=1, password=pydantic.SecretStr("1234")))
    assert hidden != key_of(sync, Customer(id=1, password=pydantic.SecretStr("1235")))


def test_what_is_private_is_in_no_key(app: Windlass) -> None:
    with pytest.raises(InvalidOption, match='argument "email" is a secret'):

        @app.task(unique=Unique("email"), private=("email",))
        def greet(email: str) -> None: ...

    @app.task(unique=Unique("who"), private=("email",))
    def invite(who: dict[str, str]) -> None: ...

    assert key_of(invite, {"name": "ada"}) == 'who={"name":"ada"}'
    hidden = key_of(invite, {"name": "ada", "work_email": "ada@example.com"})
    assert hidden.startswith("sha256:")
    assert hidden != key_of(invite, {"name": "ada", "work_email": "bob@example.com"})


def test_what_is_wrong_is_said_when_the_task_is_registered(app: Windlass) -> None:
    with pytest.raises(InvalidOption, match=r'task "sync": unique= names "usr"; .*user'):

        @app.task(unique=Unique("usr"))
        def sync(user: int) -> None: ...

    with pytest.raises(InvalidOption, match="unique must be a Unique"):

        @app.task(unique="user")  # type: ignore[call-overload]
        def sync2(user: int) -> None: ...

    with pytest.raises(InvalidOption, match=r"the default of argument .at. cannot be part of a unique key"):

        @app.task(unique=Unique())
        def sync3(at: Any = app) -> None: ...

    with pytest.raises(InvalidOption, match="Unique takes the names of arguments"):
        Unique(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match='mode must be one of "ignore"'):
        Unique("user", mode="never")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="window"):
        Unique("user", window="soon")


def test_a_key_of_the_call_stands_and_so_do_its_mode_and_window(app: Windlass) -> None:
    @app.task(unique=Unique("user", window="1h", mode="throttle"))
    def sync(user: int) -> None: ...

    assert key_of(sync, 1) == key_of(sync.using(lane="a"), 1) == "user=1"
    named = sync.using(key="mine").call(1).job
    assert (named.key, named.mode, named.window) == ("mine", "throttle", 3_600_000_000)
    other = sync.using(mode="replace", window="5s").call(1).job
    assert (other.key, other.mode, other.window) == ("user=1", "replace", 5_000_000)


def test_each_mode_does_what_it_says() -> None:
    app = Windlass("memory://")
    ran: list[tuple[str, int]] = []

    @app.task(unique=Unique("user"))
    def ignore(user: int, n: int) -> None:
        ran.append(("ignore", n))

    @app.task(unique=Unique("user", mode="replace"))
    def replace(user: int, n: int) -> None:
        ran.append(("replace", n))

    @app.task(unique=Unique("user", mode="throttle", window="10s"))
    def throttle(user: int, n: int) -> None:
        ran.append(("throttle", n))

    with testing(app) as t:
        for task in (ignore, replace, throttle):
            for n in (1, 2):
                task.enqueue(7, n)
        t.drain()
        assert sorted(ran) == [("ignore", 1), ("replace", 2), ("throttle", 1)]
        ran.clear()
        for task in (ignore, replace, throttle):
            task.enqueue(7, 3)
        t.drain()
        assert sorted(ran) == [("ignore", 3), ("replace", 3)]
        t.advance(10)
        throttle.enqueue(7, 4)
        t.drain()
        assert ran[-1] == ("throttle", 4)


def test_in_bulk_in_flows_and_spawned_the_keys_are_the_same() -> None:
    app = Windlass("memory://")
    ran: list[int] = []

    @app.task(unique=Unique("user"))
    def sync(user: int) -> int:
        ran.append(user)
        return user

    @app.task
    def spread() -> None:
        for user in (1, 1, 2):
            current.spawn(sync.call(user))

    with testing(app) as t:
        jobs = app.enqueue_many(sync.call(user) for user in [1, 2] * 600)
        assert len({job.id for job in jobs}) == 2
        assert sum(job.created for job in jobs) == 2
        chain(spread.call(), group(sync.call(3), sync.call(4))).enqueue()
        t.drain()
        assert sorted(ran) == [1, 1, 2, 2, 3, 4]


def test_a_schedule_makes_jobs_under_the_key() -> None:
    app = Windlass("memory://")

    @app.task(unique=Unique("user"))
    def sync(user: int) -> None: ...

    app.schedule("often", sync.call(1), every=10)
    with testing(app) as t:
        t.advance(10)
        assert [job.asked.key for job in t.enqueued(sync)] == ["user=1"]


def test_over_http_and_on_the_command_line_too(app: Windlass) -> None:
    @app.task(unique=Unique("user"))
    def sync(user: int, note: str = "") -> None: ...

    async def by_name(arguments: bytes, **options: Any) -> Accepted:
        return await Enqueueing(app, await app.broker()).call("sync", arguments, options)  # type: ignore[arg-type]

    first = sync.enqueue(1, "a")
    again = app.run(by_name(b'{"user": 1, "note": "b"}'))
    named = app.run(by_name(b'{"user": 1}', key="mine"))
    assert (again.id, again.created, named.created) == (first.id, False, True)


def test_keys_are_made_once_for_each_task(app: Windlass) -> None:
    @app.task(unique=Unique("user"))
    def sync(user: int) -> None: ...

    assert isinstance(sync.options.unique, UniqueKeys)
    assert sync.using(lane="a").options.unique is sync.options.unique
