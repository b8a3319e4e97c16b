"""The scheduler: enqueues tasks when their cron specs are due, and publishes its entries as asynq's scheduler does. A
loop on its own thread drives the engine. The engine asks each entry for its ticks, and enqueues their tasks.
"""

from fastq.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
