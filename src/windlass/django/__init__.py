"""Windlass in a Django project: docs/django.md.

    INSTALLED_APPS = [..., "windlass.django"]
    WINDLASS = {"url": "postgres://..."}                                    # the keywords of Windlass(...)
    TASKS = {"default": {"BACKEND": "windlass.django.backend.TasksBackend"}}    # for django.tasks

`from windlass.django import app` is the project's app; workers and commands know it as `windlass.django:app`.
"""

from typing import TYPE_CHECKING, Any

from windlass.extras import lacking

if TYPE_CHECKING:
    from windlass.django.project import ProjectApp

    app: ProjectApp

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    """Make the app when it is first asked for: Django's settings are not there when this is imported."""
    if name == "app":
        try:
            from windlass.django.project import project_app  # noqa: PLC0415 - as above
        except ModuleNotFoundError as missing:
            raise lacking("windlass.django", missing, "django") from missing

        return project_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
