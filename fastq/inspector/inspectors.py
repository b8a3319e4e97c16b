"""Inspector and AsyncInspector: the same methods, driven with blocking sockets and on an asyncio loop."""

from fastq.inspector.actions import ActionMethods
from fastq.inspector.bulk import BulkMethods
from fastq.inspector.control import ControlMethods
from fastq.inspector.doctor.methods import DoctorMethods
from fastq.inspector.drain import DrainMethods
from fastq.inspector.driver import AsyncDriver, BlockingDriver
from fastq.inspector.export import ExportMethods
from fastq.inspector.follow import FollowMethods
from fastq.inspector.importing import ImportMethods
from fastq.inspector.jobs import JobMethods
from fastq.inspector.lanes import LaneMethods
from fastq.inspector.leaving import LeavingMethods
from fastq.inspector.processes import ServerMethods
from fastq.inspector.queues import QueueMethods
from fastq.inspector.retry import RetryMethods
from fastq.inspector.runs import RunMethods
from fastq.inspector.search import SearchMethods
from fastq.inspector.tasks import TaskMethods
from fastq.inspector.transfer import TransferMethods


class _Methods(
    QueueMethods,
    LaneMethods,
    RunMethods,
    TaskMethods,
    ActionMethods,
    BulkMethods,
    DrainMethods,
    FollowMethods,
    SearchMethods,
    RetryMethods,
    TransferMethods,
    ExportMethods,
    ImportMethods,
    JobMethods,
    DoctorMethods,
    LeavingMethods,
    ServerMethods,
    ControlMethods,
):
    """All methods of an inspector."""


class Inspector(_Methods, BlockingDriver):
    """An inspector of queues, tasks, servers and schedulers of Go and fastq, which can also act on them.

    ``redis`` is as for ``Client``. Safe to share among threads. No call keeps Redis busy for long, however many tasks
    there are: work on many tasks is done in chunks, so it is not atomic. A queue that is not listed in ``asynq:queues``
    raises ``QueueNotFoundError``. Bad input raises ``ValueError`` or ``TypeError`` before anything is sent.
    """


class AsyncInspector(_Methods, AsyncDriver):
    """An inspector for asyncio programs: ``Inspector`` with awaitable methods.

    ``redis`` is as for ``AsyncClient``. A call that is canceled may still have made some or all of its changes.
    """
