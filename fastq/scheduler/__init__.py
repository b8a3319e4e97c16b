"""The scheduler: enqueues tasks when their cron specs are due, and shows its entries as asynq's does.

A loop on its own thread drives the engine. The engine asks each entry for its ticks, and Redis to enqueue them.
"""

from fastq.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
