"""SQLAlchemy: effects that happen once, and tasks that are enqueued by the commit of a transaction.

``metadata`` has the tables: create them with ``metadata.create_all(engine)``, or add it to Alembic's
``target_metadata``.
"""

from fastq.contrib.sqlalchemy.once import once
from fastq.contrib.sqlalchemy.outbox import Relayed, add_to_outbox, relay
from fastq.contrib.sqlalchemy.tables import CommittedTask, OutboxTask, metadata

__all__ = ["CommittedTask", "OutboxTask", "Relayed", "add_to_outbox", "metadata", "once", "relay"]
