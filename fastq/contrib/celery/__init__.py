"""Tasks written for Celery, run by fastq's workers: import these names in place of Celery's.

``fastq celery check`` lists what works, what differs and what is not supported. Celery itself is not needed.
"""

import logging

from fastq.contrib.celery.app import Celery, shared_task
from fastq.contrib.celery.result import AsyncResult, TaskRevokedError
from fastq.contrib.celery.task import MaxRetriesExceededError, Reject, Signature, Task
from fastq.errors import Retry
from fastq.errors import RevokeTask as Ignore
from fastq.errors import TaskTimeout as SoftTimeLimitExceeded

__all__ = [
    "AsyncResult",
    "Celery",
    "Ignore",
    "MaxRetriesExceededError",
    "Reject",
    "Retry",
    "Signature",
    "SoftTimeLimitExceeded",
    "Task",
    "TaskRevokedError",
    "get_task_logger",
    "shared_task",
]

get_task_logger = logging.getLogger
