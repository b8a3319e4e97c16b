"""The table of ``once``, and the models that the admin lists."""

from datetime import datetime
from typing import Any

from django.db import models


class CommittedTask(models.Model):
    """A task of ``once`` whose effects are committed, with its result."""

    key: "models.CharField[str, str]" = models.CharField(primary_key=True, max_length=500)
    result = models.JSONField(null=True)
    committed_at: "models.DateTimeField[datetime, datetime]" = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        """The names that the admin shows."""

        verbose_name = "committed task"

    def __str__(self) -> str:
        return self.key


class _NoRows(models.Manager[Any]):
    """The manager of models without a table; ``dumpdata`` asks for their rows, too."""

    def get_queryset(self) -> "models.QuerySet[Any]":
        return super().get_queryset().none()


class _InRedis(models.Model):
    """A model that gives the admin a page, permissions and log entries; its objects are in Redis."""

    key: "models.CharField[str, str]" = models.CharField(primary_key=True, max_length=500)

    objects = _NoRows()

    class Meta:
        """There is no table."""

        abstract = True
        managed = False
        base_manager_name = "objects"

    def __str__(self) -> str:
        return self.key


class QueuedTask(_InRedis):
    """A task of a queue."""

    class Meta(_InRedis.Meta):
        """What may be done with it."""

        default_permissions = ("view", "change", "delete")
        verbose_name = "task"


class PeriodicTask(_InRedis):
    """An entry of a scheduler."""

    class Meta(_InRedis.Meta):
        """What may be done with it."""

        default_permissions = ("view",)
        verbose_name = "periodic task"
