"""The entry of INSTALLED_APPS: finds the modules `tasks` of all installed apps."""
# pyright: basic, reportMissingTypeStubs=false

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class WindlassConfig(AppConfig):
    """The Django app config of Windlass."""

    name = "windlass.django"
    label = "windlass"
    # Django would warn where the project names none.
    default_auto_field = "django.db.models.BigAutoField"  # pyright: ignore[reportAssignmentType] - of the stubs
    verbose_name = "Windlass"
    default = True

    def ready(self) -> None:
        """Import every `tasks.py`: a worker runs only tasks that were registered."""
        autodiscover_modules("tasks")
