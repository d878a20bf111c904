"""What can be a task, and what is refused with what to write instead."""

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from windlass import Windlass
from windlass.errors import InvalidOption


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


def double(number: int) -> int:
    """Twice as much."""
    return 2 * number


class Sums:
    """Functions of all kinds inside a class."""

    def method(self, number: int) -> int:
        return number

    @classmethod
    def of_class(cls, number: int) -> int:
        return number

    @staticmethod
    def static(number: int) -> int:
        return number

    def __call__(self, number: int) -> int:
        return number


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (Sums().method, "method"),
        (Sums.of_class, "of_class"),
        (Sums.static, "static"),
        (staticmethod(double), "double"),
    ],
    ids=["bound method", "classmethod", "staticmethod", "staticmethod object"],
)
def test_functions_with_a_name(app: Windlass, function: Any, name: str) -> None:
    task = app.task(function)
    assert (task.name, task.__name__) == (name, name)
    assert task.signature.decode(task.call(3).job.payload) == ((), {"number": 3})


@pytest.mark.parametrize(
    "function",
    [functools.partial(double), Sums(), lambda number: number],
    ids=["partial", "object", "lambda"],
)
def test_functions_without_a_name_need_one(app: Windlass, function: Any) -> None:
    with pytest.raises(InvalidOption, match=r"has no name of its own; give the task one: name=\.\.\."):
        app.task(function)
    task = app.task(name="named")(function)
    assert task(4) in (4, 8)
    assert task.call(number=4).job.task == "named"


def test_a_task_inside_a_class(app: Windlass) -> None:
    class Mail:
        @app.task
        @staticmethod
        def inner(number: int) -> int:
            return number

        @staticmethod
        @app.task
        def outer(number: int) -> int:
            return number

    assert Mail.inner(1) == Mail().outer(1) == 1
    assert Mail.inner.function is not staticmethod
    assert set(app.tasks) == {"inner", "outer"}


def numbers() -> Iterator[int]:
    yield 1


async def slow_numbers() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            Sums.method,
            r"^Sums.method\(\) is a method, and its object cannot be stored with a call; use a function",
        ),
        (Sums.__dict__["of_class"], "a task is a function, not <classmethod"),
        (Sums, "a task is a function, not the class Sums; write a function"),
        (
            numbers,
            r"^numbers\(\) is a generator, which does nothing when it is called; return a list instead",
        ),
        (functools.partial(numbers), "is a generator"),
        (slow_numbers, r"^slow_numbers\(\) is a generator"),
        (5, "a task is a function, not 5"),
        ("mail", "a task is a function, not 'mail'"),
        (min, r"min\(\): its parameters cannot be read"),
    ],
    ids=[
        "method",
        "classmethod",
        "class",
        "generator",
        "partial",
        "async generator",
        "number",
        "text",
        "builtin",
    ],
)
def test_what_cannot_be_a_task(app: Windlass, function: Any, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        app.task(function)
    assert not app.tasks


def test_a_builtin_that_says_its_parameters(app: Windlass) -> None:
    assert app.task(print).call("hello", sep="").job.task == "print"


def test_a_task_looks_like_its_function(app: Windlass) -> None:
    task = app.task(double)
    assert (task.__name__, task.__qualname__, task.__module__) == ("double", "double", __name__)
    assert (task.__doc__, task.__wrapped__) == ("Twice as much.", double)
    assert repr(task) == "<Task double>"


def test_a_task_of_one_app_can_be_one_of_another(app: Windlass) -> None:
    task = app.task(double)
    other = Windlass("memory://")
    assert other.task(task).function is double
    with pytest.raises(InvalidOption, match='two tasks called "double"'):
        app.task(task)
