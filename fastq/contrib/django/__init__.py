"""Django: a backend of its tasks, ``manage.py fastq``, and database connections that survive forks and restarts.

``FastqBackend`` is in ``backend``, the app that workers serve in ``worker``, the backend for tests in ``testing``.
"""
