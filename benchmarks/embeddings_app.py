"""The embedding service of docs/embeddings.md: a model in each child, with torch where that is there, else with numpy.

The model of torch is a transformer of random weights, as large as $EMBEDDINGS_MODEL says. What each child and each call
did goes to the file $EMBEDDINGS_LOG.
"""

import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from fastq import App, Batch, Context

BACKEND: Final = os.environ.get("EMBEDDINGS_BACKEND") or ("torch" if find_spec("torch") else "numpy")
torch: Any = import_module("torch") if BACKEND == "torch" else None  # children share it; its import uses no GPU
MODEL: Final = os.environ.get("EMBEDDINGS_MODEL", "small")
WORDS: Final = 30_000
TOKENS: Final = 64
Embedder = Callable[[Sequence[str]], list[bytes]]


class Size(NamedTuple):
    """The size of a transformer."""

    layers: int
    width: int
    heads: int


SIZES: Final = {"tiny": Size(2, 64, 4), "small": Size(6, 384, 12), "large": Size(24, 1024, 16)}
"""Tiny is for a try on a processor; the others are as large as MiniLM-L6 and BERT-large."""

app = App()


def numbers(text: str) -> list[int]:
    """Return the numbers of a text's words; 0 is no word."""
    return [zlib.crc32(word.encode()) % (WORDS - 1) + 1 for word in text.split()] or [1]


def with_numpy() -> Embedder:
    """Make a model on the processor."""
    random, (layers, width, hidden) = np.random.default_rng(7), (4, 256, 1024)
    table = random.standard_normal((WORDS, width), np.float32)
    weights = [
        (
            random.standard_normal((width, hidden), np.float32) / width**0.5,
            random.standard_normal((hidden, width), np.float32) / hidden**0.5,
        )
        for _ in range(layers)
    ]

    def embed(texts: Sequence[str]) -> list[bytes]:
        found = [numbers(text) for text in texts]
        starts = np.cumsum([0, *map(len, found)])[:-1]
        rows = np.add.reduceat(table[[word for each in found for word in each]], starts)
        for up, down in weights:
            rows = rows + np.maximum(rows @ up, 0) @ down
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return [row.tobytes() for row in rows.astype(np.float16)]

    return embed


def with_torch() -> Embedder:
    """Make a transformer on the child's own GPU, else on the processor."""
    size = SIZES[MODEL]
    place, kind = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.float32)
    torch.manual_seed(7)
    made: Any = {"device": place, "dtype": kind}
    words, places = (torch.nn.Embedding(count, size.width, **made) for count in (WORDS, TOKENS))
    layer = torch.nn.TransformerEncoderLayer(
        size.width, size.heads, 4 * size.width, dropout=0.0, activation="gelu", batch_first=True, **made
    )
    encoder = torch.nn.TransformerEncoder(layer, size.layers, enable_nested_tensor=False).eval()

    def embed(texts: Sequence[str]) -> list[bytes]:
        found = np.zeros((len(texts), TOKENS), np.int64)
        for row, text in zip(found, texts, strict=True):
            some = numbers(text)[:TOKENS]
            row[: len(some)] = some
        with torch.inference_mode():
            tokens = torch.from_numpy(found).to(place)
            are_padding = tokens == 0
            states = encoder(words(tokens) + places.weight, src_key_padding_mask=are_padding)
            means = states.masked_fill(are_padding.unsqueeze(2), 0).sum(1)
            vectors = torch.nn.functional.normalize(means.float(), dim=1).half().cpu().numpy()
        return [vector.tobytes() for vector in vectors]

    return embed


def device_mb() -> int:
    """Return how much of the memory of this child's GPU is in use, whoever uses it; 0 without one."""
    if not torch or not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    return int(total - free) >> 20


def load() -> Embedder:
    """Return the model, warm: its first call is the slowest."""
    embed = with_torch() if torch else with_numpy()
    for count in (1, 64, 256):
        embed(["the first call of all"] * count)
    return embed


@app.lifespan
def model() -> Iterator[Embedder]:
    """Load the model once a child, before its first task."""
    path = os.environ.get("EMBEDDINGS_LOG", os.devnull)
    log = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    loads = [line.split() for line in Path(path).read_text().splitlines() if line.startswith("load ")]
    there = sum(Path("/proc", words[1]).exists() for words in loads)
    before_mb = device_mb()
    embed = load()
    os.write(log, f"load {os.getpid()} {there} {before_mb} {device_mb()}\n".encode())

    def noted(texts: Sequence[str]) -> list[bytes]:
        began_s = time.perf_counter()
        vectors = embed(texts)
        os.write(log, f"call {len(texts)} {time.perf_counter() - began_s:.6f}\n".encode())
        return vectors

    yield noted
    os.close(log)


@app.task("text.embed", queue="embed", timeout=60)
def embed_one(ctx: Context[Embedder], text: str) -> bytes:
    """Embed the text of a task: one call a task."""
    return ctx.env([text])[0]


@app.task("text.embed_64", queue="embed", timeout=60, batch=64)
def embed_64(texts: Batch[str, Embedder]) -> list[bytes]:
    """Embed the texts of up to 64 tasks in one call; each task has its own result, and its own retries."""
    return texts.env(texts)


@app.task("text.embed_256", queue="embed", timeout=60, batch=256)
def embed_256(texts: Batch[str, Embedder]) -> list[bytes]:
    """Embed the texts of up to 256 tasks in one call."""
    return texts.env(texts)


@app.task("texts.embed", queue="embed", timeout=60)
def embed_list(ctx: Context[Embedder], texts: list[str]) -> list[bytes]:
    """Embed the texts of a task: the producer has put many into one, which succeed or fail together."""
    return ctx.env(texts)


SINGLE: Final[dict[str, Any]] = {"one": embed_one, "64": embed_64, "256": embed_256}
"""The ways to embed texts in which each text is a task."""


def made(way: str, texts: Iterator[str]) -> Iterator[Any]:
    """Yield the tasks of a way to embed some texts; ``list`` has 64 in each."""
    if way != "list":
        yield from map(SINGLE[way].task, texts)
        return
    while some := [text for text, _ in zip(texts, range(64), strict=False)]:
        yield embed_list.task(some)
