"""The scheduler that processes of both versions run at once: each tick is to be enqueued by one of them only."""

import os

from fastq import Scheduler

scheduler = Scheduler(os.environ["FASTQ_REDIS_URL"])
scheduler.register("@every 1s", "tick", name="tick", queue="a")
