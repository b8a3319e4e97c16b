"""The app that ``manage.py fastq worker`` serves: ``fastq-worker fastq.contrib.django.worker:app``."""

from fastq.contrib.django.discovery import worker_app

app = worker_app()
