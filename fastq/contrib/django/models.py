"""The table of ``once``."""

from datetime import datetime

from django.db import models

__all__ = ["CommittedTask"]


class CommittedTask(models.Model):
    """A task of ``once`` whose effects are committed, with its result."""

    key: "models.CharField[str, str]" = models.CharField(primary_key=True, max_length=500)
    result = models.JSONField(null=True)
    committed_at: "models.DateTimeField[datetime, datetime]" = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        """The names that people see."""

        verbose_name = "committed task"

    def __str__(self) -> str:
        return self.key
