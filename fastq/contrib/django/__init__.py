"""Django: a backend of its tasks, ``manage.py fastq``, and database connections that survive forks and restarts.

The app that workers serve is in ``worker``, the backend for tests in ``testing``.
"""

from fastq.contrib.connections import FreshConnections
from fastq.contrib.django.backend import FastqBackend, task
from fastq.contrib.django.once import once

__all__ = ["FastqBackend", "FreshConnections", "once", "task"]
