"""The lines of an import, cut into pieces that are put in one step."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fastq.cli.task_lines import Line

__all__ = ["Numbered", "chunks", "of_one_queue"]

LINES_A_CALL: Final = 200
MAX_CALL_BYTES: Final = 256_000


@dataclass(frozen=True, slots=True)
class Numbered:
    """Hold a line and its number, counted from 1."""

    number: int
    line: Line


def chunks(source: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Cut lines into pieces, each with the number of its first line."""
    chunk: list[bytes] = []
    first, size = 1, 0
    for text in source:
        chunk.append(text)
        size += len(text)
        if len(chunk) >= LINES_A_CALL or size >= MAX_CALL_BYTES:
            yield first, chunk
            first, chunk, size = first + len(chunk), [], 0
    if chunk:
        yield first, chunk


def of_one_queue(lines: Sequence[Numbered]) -> Iterator[list[Numbered]]:
    """Cut a piece where the queue changes."""
    some: list[Numbered] = []
    for each in lines:
        if some and each.line.queue != some[0].line.queue:
            yield some
            some = []
        some.append(each)
    if some:
        yield some
