"""The work of the web process beside its replies: whose searches end whose, and the turns of long computations."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

import pytest

from fastq.web import work
from fastq.web.work import Board, FullError, Turns, Work

P = ParamSpec("P")


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @wraps(test)
    def run(*args: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*args, **named))

    return run


async def _endless(work: Work) -> str:
    while True:
        await asyncio.sleep(0)
        work.note(work.progress)


def _begin(board: Board, owner: str, name: str) -> Work:
    return board.look_up(f"{owner} {name}", Work(name, owner, owner=owner), _endless)


@in_a_loop
async def test_a_user_with_too_many_searches_ends_their_own_and_nobody_elses() -> None:
    board = Board()
    of_bob = _begin(board, "bob", "a")
    of_ann = [_begin(board, "ann", name) for name in "abc"]
    board.lookup("ann a")  # is looked at
    assert all(each.stopped_by is None for each in of_ann)
    of_ann.append(_begin(board, "ann", "d"))
    await asyncio.wait_for(of_ann[1].end.wait(), 30)
    assert [each.is_running for each in of_ann] == [True, False, True, True]
    assert of_bob.is_running
    assert _begin(board, "ann", "d") is of_ann[3]
    await board.close()


@in_a_loop
async def test_no_search_begins_while_too_many_of_others_go_on() -> None:
    board = Board()
    others = [_begin(board, f"user {n}", "a") for n in range(work.MOST_LOOKUPS)]
    with pytest.raises(FullError, match="12 searches of others go on"):
        _begin(board, "ann", "a")
    examination = board.look_up("doctor", Work("Examination"), _endless)  # it is nobody's
    assert all(each.is_running for each in (examination, *others))
    others[0].stop("bob")
    assert _begin(board, "ann", "a").is_running
    await board.close()


@in_a_loop
async def test_few_of_the_ended_searches_are_kept() -> None:
    async def nothing(work: Work) -> str:
        return ""

    board = Board()
    for n in range(2 * work.MOST_KEPT):
        await board.look_up(str(n), Work("x", owner="ann"), nothing).end.wait()
    assert [name for name in map(str, range(2 * work.MOST_KEPT)) if board.lookup(name)] == [
        str(n) for n in range(work.MOST_KEPT, 2 * work.MOST_KEPT)
    ]
    await board.close()


@in_a_loop
async def test_long_computations_take_turns_and_let_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "STRETCH_S", -1.0)
    turns, done = Turns(), list[str]()

    async def compute(name: str) -> None:
        async with turns:
            for _ in range(3):
                done.append(name)
                await turns.breathe()

    async def reply() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            done.append("page")

    await asyncio.gather(compute("a"), compute("b"), reply())
    assert [name for name in done if name != "page"] == ["a", "a", "a", "b", "b", "b"]
    assert done[:6].count("page") >= 2


@in_a_loop
async def test_what_a_user_has_found_is_not_forgotten_for_the_searches_of_another() -> None:
    async def quick(work: Work) -> str:
        return ""

    board = Board()
    found = board.look_up("ann a", Work("a", "ann", owner="ann"), quick)
    await found.end.wait()
    for n in range(work.MOST_KEPT + 5):
        await board.look_up(f"bob {n}", Work("b", "bob", owner="bob"), quick).end.wait()
    assert board.lookup("ann a") is found
    await board.close()
