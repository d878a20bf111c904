"""What stands in the tests of Django in place of its own two backends: `django_backend_tests.py`.

Each test has a store of its own, in memory. `DummyBackend` leaves jobs there, `ImmediateBackend` runs them.
"""
# pyright: basic, reportMissingTypeStubs=false, reportMissingImports=false

from typing import Any
from unittest import TestCase, TestResult

from asgiref.sync import sync_to_async

from windlass.django.backend import TaskResult, TasksBackend
from windlass.django.testing import jobs
from windlass.testing import Bench

_LIST = "it reaches into the list that Django's DummyBackend keeps"
_CANNOT = "it says that Django's ImmediateBackend cannot do this; Windlass can"
LEFT_OUT = {
    "CustomBackendTestCase": "its backends are Django's base class: nothing of Windlass would run",
    "DummyBackendTestCase.test_clear": _LIST,
    "DummyBackendTestCase.test_refresh_result": _LIST,
    "DummyBackendTestCase.test_refresh_result_async": _LIST,
    "ImmediateBackendTestCase.test_cannot_get_result": _CANNOT,
    "ImmediateBackendTestCase.test_cannot_pass_run_after": _CANNOT,
    "ImmediateBackendTestCase.test_cannot_refresh_result": _CANNOT,
    "ImmediateBackendTestCase.test_complex_return_value": "the error is InvalidPayload here, not TypeError",
    "ImmediateBackendTestCase.test_get_result_from_different_request": _CANNOT,
}
"""Tests and cases that do not apply, and why."""


class WithJobs(TestCase):
    """A test with a store of its own."""

    bench: Bench

    def run(self, result: TestResult | None = None) -> TestResult | None:
        """Run it, unless it is left out."""
        case = type(self).__name__
        reason = LEFT_OUT.get(case) or LEFT_OUT.get(f"{case}.{self._testMethodName}")
        if reason is not None and result is not None:
            result.startTest(self)
            result.addSkip(self, reason)
            result.stopTest(self)
            return result
        with jobs(raises=False) as WithJobs.bench:
            return super().run(result)


class DummyBackend(TasksBackend):
    """Jobs wait, as with Django's `DummyBackend`."""

    def enqueue(self, *args: Any, **kwargs: Any) -> TaskResult:
        """With the time at which the store accepted it: what is read later has that, too."""
        result = super().enqueue(*args, **kwargs)
        object.__setattr__(result, "enqueued_at", self.get_result(result.id).enqueued_at)
        return result

    @property
    def results(self) -> list[TaskResult]:
        """Of all jobs in the store."""
        return [self.get_result(job.id) for job in WithJobs.bench.enqueued()]

    def clear(self) -> None:
        """Nothing to do: the store of a test is new."""


class ImmediateBackend(TasksBackend):
    """Jobs have run when `enqueue` returns, as with Django's `ImmediateBackend`."""

    def enqueue(self, *args: Any, **kwargs: Any) -> TaskResult:
        """Run what was sent, and read how it ended."""
        result = super().enqueue(*args, **kwargs)
        _finish(result)
        return result

    async def aenqueue(self, *args: Any, **kwargs: Any) -> TaskResult:
        """The same. Async tasks need the thread of the test, so they are not run there."""
        result = await sync_to_async(super().enqueue)(*args, **kwargs)
        await sync_to_async(_finish, thread_sensitive=False)(result)
        return result


def _finish(result: TaskResult) -> None:
    WithJobs.bench.drain()
    result.refresh()
