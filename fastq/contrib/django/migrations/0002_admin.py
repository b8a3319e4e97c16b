"""Add the models that the admin lists; they have no tables."""

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """The migration from which Django makes the admin's permissions."""

    dependencies: ClassVar[Any] = (("fastq", "0001_initial"),)

    operations: ClassVar[Any] = tuple(
        migrations.CreateModel(
            name=name,
            fields=[("key", models.CharField(max_length=500, primary_key=True, serialize=False))],
            options={
                "verbose_name": verbose_name,
                "default_permissions": permissions,
                "managed": False,
                "abstract": False,
                "base_manager_name": "objects",
            },
        )
        for name, verbose_name, permissions in (
            ("QueuedTask", "task", ("view", "change", "delete")),
            ("PeriodicTask", "periodic task", ("view",)),
        )
    )
