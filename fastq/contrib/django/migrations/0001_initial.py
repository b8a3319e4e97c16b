"""Create the table of ``once``."""

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first migration."""

    initial = True

    dependencies: ClassVar[Any] = ()

    operations: ClassVar[Any] = (
        migrations.CreateModel(
            name="CommittedTask",
            fields=[
                ("key", models.CharField(max_length=500, primary_key=True, serialize=False)),
                ("result", models.JSONField(null=True)),
                ("committed_at", models.DateTimeField(auto_now_add=True, db_index=True)),
            ],
            options={"verbose_name": "committed task"},
        ),
    )
