"""Cron schedules: asynq's grammar (robfig's, five fields, ``@every``, ``TZ=``), and the next due times.

``parse("0 9 * * mon-fri", tz="Europe/Paris").next(now)`` is a time with the zone of the schedule, or None for never.
"""

from fastq.cron.parse import parse
from fastq.cron.schedule import Schedule
from fastq.errors import CronSpecError

__all__ = ["CronSpecError", "Schedule", "parse"]
