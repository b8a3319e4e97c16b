"""The shop without Django's tasks, and without fastq's app: a Celery project."""

from tests.contrib.django.shop.settings import DATABASES, DEFAULT_AUTO_FIELD, SECRET_KEY, USE_TZ

__all__ = ["DATABASES", "DEFAULT_AUTO_FIELD", "SECRET_KEY", "USE_TZ"]

INSTALLED_APPS = ["tests.contrib.django.shop"]
