"""The Django app: add ``fastq.contrib.django`` to INSTALLED_APPS for ``manage.py fastq``."""

from django.apps import AppConfig


class FastqConfig(AppConfig):
    """The configuration of the app."""

    name = "fastq.contrib.django"
    label = "fastq"
    default_auto_field = "django.db.models.BigAutoField"
