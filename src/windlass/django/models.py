"""What the admin lists: nothing of it is a table."""
# pyright: basic, reportMissingTypeStubs=false

from django.db import models


class Queue(models.Model):
    """A queue, as far as the admin needs one: a name for the page and for the permission to see it."""

    class Meta:
        """Not a table."""

        managed = False
        default_permissions = ("view",)
        verbose_name_plural = "queues"
