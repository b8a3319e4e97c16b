"""``once`` with SQLAlchemy: on SQLite, and for rivals on a real PostgreSQL."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from sqlalchemy import NullPool, create_engine, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from fastq import App, Context
from fastq.contrib.sqlalchemy import CommittedTask, metadata, once
from fastq.testing import RunOutcome, run_task
from tests.postgres import postgres
from tests.waiting import wait_until


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


Sessions = sessionmaker[Session]()
AsyncSessions = async_sessionmaker[AsyncSession]()
app = App()


def sold(session: Session, item: str) -> Any:
    session.add(Order(item=item))
    session.flush()
    if item == "nothing":
        raise ValueError("no stock")
    return [item, session.scalar(select(func.count()).select_from(Order))] if item != "silence" else None


@app.task("sell")
@once(Sessions)
def sell(session: Session, item: str = "book") -> Any:
    return sold(session, item)


@app.task("asell")
@once(AsyncSessions)
async def asell(session: AsyncSession, item: str) -> Any:
    return await session.run_sync(sold, item)


@once(Sessions)
def count(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(Order)) or 0


@app.task("both")
def both(ctx: Context, item: str) -> list[Any]:
    return [sell(item), count()]


@pytest.fixture(autouse=True)
def tables(tmp_path: Path) -> Iterator[None]:
    place = tmp_path / "shop.db"
    engine = create_engine(f"sqlite:///{place}")
    Base.metadata.create_all(engine)
    metadata.create_all(engine)
    Sessions.configure(bind=engine)
    async_engine = create_async_engine(f"sqlite+aiosqlite:///{place}", poolclass=NullPool)
    AsyncSessions.configure(bind=async_engine)
    yield
    engine.dispose()


def orders() -> int:
    with Sessions() as session:
        return session.scalar(select(func.count()).select_from(Order)) or 0


@pytest.mark.parametrize("task", [sell, asell])
def test_a_second_run_of_a_task_returns_the_result_of_the_first(task: Any) -> None:
    def run(item: str, task_id: str, queue: str = "default") -> Any:
        made = run_task(app, task.task(item), task_id=task_id, queue=queue, retention=60)
        return made.error or made.json()

    assert [run("book", "a") for _ in range(2)] == [["book", 1]] * 2
    assert run("book", "b") == ["book", 2]
    assert run("book", "a", "other") == ["book", 3]
    assert [type(run("nothing", "c")) for _ in range(2)] == [ValueError] * 2
    assert orders() == 3
    assert run("book", "c") == ["book", 4]  # a run that fails leaves nothing


def test_a_result_of_none_is_kept_too() -> None:
    runs = [run_task(app, sell.task("silence"), task_id="a") for _ in range(2)]
    assert ([run.result for run in runs], orders()) == ([None, None], 1)


def test_a_task_may_call_several_functions() -> None:
    runs = [run_task(app, both.task("book"), task_id="a", retention=60).json() for _ in range(2)]
    assert (runs, orders()) == ([[["book", 1], 1]] * 2, 1)


def test_outside_a_task_it_is_a_function_in_a_transaction() -> None:
    assert [sell("book"), asyncio.run(closed(asell("book"))), count()] == [["book", 1], ["book", 2], 2]
    with pytest.raises(ValueError, match="no stock"):
        sell("nothing")
    assert orders() == 2
    with Sessions() as session:
        assert session.scalar(select(func.count()).select_from(CommittedTask)) == 0


async def closed(work: Any) -> Any:
    return await work


def test_callers_leave_the_session_out() -> None:
    assert [field.name for field in sell.payload.fields] == ["item"]
    with pytest.raises(TypeError, match="called as"):
        sell.task("book", "more")  # type: ignore[call-overload]  # one too many


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a sessionmaker"):
        once(Session)  # type: ignore[call-overload]  # no sessionmaker

    async def later(session: AsyncSession) -> None: ...

    with pytest.raises(TypeError, match="for a coroutine, and only for one"):
        once(Sessions)(later)  # type: ignore[arg-type]  # a coroutine
    with pytest.raises(TypeError, match="the function of @once is a generator"):
        once(Sessions)(lambda session: (yield session))
    with pytest.raises(TypeError, match="first parameter is the session"):
        once(Sessions)(lambda: None)  # type: ignore[misc,arg-type]  # no parameter


def test_a_rival_waits_and_returns_what_the_first_has_committed() -> None:
    with postgres() as server:
        engine = create_engine(f"postgresql+psycopg://app@127.0.0.1:{server.port}/postgres")
        Base.metadata.create_all(engine)
        metadata.create_all(engine)
        Sessions.configure(bind=engine)
        claimed, go_on = Event(), Event()

        @once(Sessions)
        def slow(session: Session) -> int:
            session.add(Order(item="book"))
            claimed.set()
            assert go_on.wait(90)
            return 7

        slow_app = App()
        task = slow_app.task("slow")(slow)
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(run_task, slow_app, task.task(), task_id="a", retention=60)
            assert claimed.wait(90)
            second = threads.submit(run_task, slow_app, task.task(), task_id="a", retention=60)
            waiting = text("select count(*) from pg_stat_activity where wait_event_type = 'Lock'")
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watch:
                wait_until(lambda: watch.execute(waiting).scalar())
            go_on.set()
            runs = [first.result(90), second.result(90)]
        assert [(run.outcome, run.json()) for run in runs] == [(RunOutcome.DONE, 7)] * 2
        assert orders() == 1
        engine.dispose()
