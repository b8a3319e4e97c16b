"""Who is compared, in the order of the table."""

from benchmarks.compare.contender import Contender
from benchmarks.compare.contenders.arq import ARQ
from benchmarks.compare.contenders.asynq import ASYNQ, ASYNQ_64, ASYNQ_256
from benchmarks.compare.contenders.bare import BARE
from benchmarks.compare.contenders.brpop import BRPOP
from benchmarks.compare.contenders.bullmq import BULLMQ
from benchmarks.compare.contenders.celery import CELERY, CELERY_LATE, CELERY_SOLO
from benchmarks.compare.contenders.dramatiq import DRAMATIQ
from benchmarks.compare.contenders.fastq import FASTQ
from benchmarks.compare.contenders.huey import HUEY
from benchmarks.compare.contenders.oban import OBAN
from benchmarks.compare.contenders.procrastinate import PROCRASTINATE
from benchmarks.compare.contenders.rq import RQ, RQ_SIMPLE
from benchmarks.compare.contenders.saq import SAQ
from benchmarks.compare.contenders.streaq import STREAQ
from benchmarks.compare.contenders.taskiq import TASKIQ_LIST, TASKIQ_STREAM

__all__ = ["CONTENDERS"]

CONTENDERS: tuple[Contender, ...] = (
    *(BARE, FASTQ, ASYNQ, ASYNQ_64, ASYNQ_256),
    *(CELERY, CELERY_LATE, CELERY_SOLO, RQ, RQ_SIMPLE, DRAMATIQ, HUEY, ARQ, SAQ, TASKIQ_LIST, TASKIQ_STREAM, STREAQ),
    *(BULLMQ, PROCRASTINATE, OBAN),
    BRPOP,
)
