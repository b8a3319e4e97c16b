"""Django: a backend of its tasks, ``manage.py fastq``, and fresh database connections around each task.

The app that workers serve is in the module ``worker``, and the backend for tests is in ``testing``.
"""

from fastq.contrib.connections import FreshConnections
from fastq.contrib.django.backend import FastqBackend, task
from fastq.contrib.django.once import once

__all__ = ["FastqBackend", "FreshConnections", "once", "task"]
