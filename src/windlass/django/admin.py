"""A page in Django's admin: the jobs of each queue by state, and a link to the dashboard."""
# pyright: basic, reportMissingTypeStubs=false

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.template.response import TemplateResponse

from windlass.admin.service import Service
from windlass.django.models import Queue
from windlass.django.project import own_settings, project_app
from windlass.errors import StoreError


@admin.register(Queue)
class QueueAdmin(admin.ModelAdmin):
    """To look at only: the dashboard and `manage.py windlass` change things."""

    def has_add_permission(self, _request: Any) -> bool:
        """Queues are declared in code."""
        return False

    def has_change_permission(self, _request: Any, _obj: Any = None) -> bool:
        """As above."""
        return False

    def has_delete_permission(self, _request: Any, _obj: Any = None) -> bool:
        """As above."""
        return False

    def changelist_view(self, request: Any, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """The page."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        app, trouble, queues = project_app(), "", []
        try:
            queues = app.run(_queues(app))
        except StoreError as error:
            trouble = str(error)
        context = {
            **self.admin_site.each_context(request),
            **(extra_context or {}),
            "title": "Queues",
            "opts": self.opts,
            "queues": queues,
            "trouble": trouble,
            "dashboard": own_settings()["dashboard"],
        }
        return TemplateResponse(request, "admin/windlass/queues.html", context)


async def _queues(app: Any) -> list[Any]:
    return list(await (await Service.of(app)).queues.all())
