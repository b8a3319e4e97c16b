"""The shop's app as a Celery project has it."""

import os

from fastq.contrib.celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.contrib.django.shop.plain_settings")

app = Celery("shop")
app.autodiscover_tasks(related_name="shim_tasks")
