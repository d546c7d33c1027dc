"""A model without a table: it gives the admin its place and its permissions."""

from __future__ import annotations

from django.db import models


class StoredJob(models.Model):
    """A job of the store, which the admin reads through the operations of the app."""

    id = models.CharField(max_length=255, primary_key=True)

    class Meta:
        """No table, and permissions to view jobs and to change them."""

        app_label = "holdfast"
        managed = False
        default_permissions = ("view", "change")
        verbose_name = "job"
        verbose_name_plural = "jobs"

    def __str__(self) -> str:
        return str(self.id)
