"""The tables of ``once`` and of the outbox."""

import uuid
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import JSON, BigInteger, DateTime, Integer, LargeBinary, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


def _now() -> datetime:
    return datetime.now(UTC)


def new_id() -> str:
    """Return an id for a task."""
    return str(uuid.uuid4())


class _Base(DeclarativeBase):
    pass


class CommittedTask(_Base):
    """A function of a task, decorated by ``once``, whose effects are committed, with its result."""

    __tablename__ = "fastq_committedtask"  # Django's table has this name, too

    key: Mapped[str] = mapped_column(String(500), primary_key=True)
    result: Mapped[Any] = mapped_column(JSON(none_as_null=True), nullable=True)
    committed_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=_now, index=True)


class OutboxTask(_Base):
    """A task that is not enqueued yet; ``options`` are the options of ``Client.enqueue``, as JSON.

    Durations are in seconds, and times are ISO 8601 with a zone. If no task can be made from a row, ``error`` has the
    reason.
    """

    __tablename__ = "fastq_outbox"

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    task_id: Mapped[str] = mapped_column(String(255), default=new_id)
    type: Mapped[str] = mapped_column(Text)
    payload: Mapped[bytes] = mapped_column(LargeBinary, default=b"")
    options: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=_now)
    error: Mapped[str | None] = mapped_column(Text)


metadata: Final[MetaData] = _Base.metadata
