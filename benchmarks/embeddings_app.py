"""The embedding service of docs/embeddings.md: a model in each child, with numpy, or with torch where that is there.

What each call did goes to the file ``$EMBEDDINGS_LOG``: texts, and seconds in the model.
"""

import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from fastq import App, Batch, Context

BACKEND: Final = os.environ.get("EMBEDDINGS_BACKEND") or ("torch" if find_spec("torch") else "numpy")
WORDS: Final = 30_000
WIDTH, HIDDEN, LAYERS = (1024, 4096, 8) if BACKEND == "torch" else (256, 1024, 4)
Embedder = Callable[[Sequence[str]], list[bytes]]

app = App()


def numbers(texts: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the numbers of all words of some texts, and where each text begins."""
    found: list[int] = []
    starts: list[int] = []
    for text in texts:
        starts.append(len(found))
        found += [zlib.crc32(word.encode()) % WORDS for word in text.split()] or [0]
    return found, starts


def with_numpy() -> Embedder:
    """Make a model on the processor."""
    random = np.random.default_rng(7)
    table = random.standard_normal((WORDS, WIDTH), np.float32)
    layers = [
        (
            random.standard_normal((WIDTH, HIDDEN), np.float32) / WIDTH**0.5,
            random.standard_normal((HIDDEN, WIDTH), np.float32) / HIDDEN**0.5,
        )
        for _ in range(LAYERS)
    ]

    def embed(texts: Sequence[str]) -> list[bytes]:
        words, starts = numbers(texts)
        rows = np.add.reduceat(table[words], starts)
        for up, down in layers:
            rows = rows + np.maximum(rows @ up, 0) @ down
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return [row.tobytes() for row in rows.astype(np.float16)]

    return embed


def with_torch() -> Embedder:
    """Make a model on the child's own GPU, else on the processor."""
    torch: Any = import_module("torch")
    place = "cuda" if torch.cuda.is_available() else "cpu"
    kind = torch.float16 if place == "cuda" else torch.float32
    torch.manual_seed(7)
    table: Any = torch.nn.EmbeddingBag(WORDS, WIDTH, mode="sum").to(place, kind)
    layers: list[tuple[Any, Any]] = [
        (torch.nn.Linear(WIDTH, HIDDEN).to(place, kind), torch.nn.Linear(HIDDEN, WIDTH).to(place, kind))
        for _ in range(LAYERS)
    ]

    def embed(texts: Sequence[str]) -> list[bytes]:
        words, starts = numbers(texts)
        with torch.inference_mode():
            rows = table(torch.tensor(words, device=place), torch.tensor(starts, device=place))
            for up, down in layers:
                rows = rows + down(torch.relu(up(rows)))
            rows = torch.nn.functional.normalize(rows.float(), dim=1).half().cpu().numpy()
        return [row.tobytes() for row in rows]

    return embed


def load() -> Embedder:
    """Return the model, warm: its first call is the slowest."""
    embed = with_torch() if BACKEND == "torch" else with_numpy()
    embed(["the first call of all"] * 64)
    return embed


@app.lifespan
def model() -> Iterator[Embedder]:
    """Load the model once a child, before its first task."""
    embed = load()
    log = os.open(os.environ.get("EMBEDDINGS_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def noted(texts: Sequence[str]) -> list[bytes]:
        began_s = time.perf_counter()
        vectors = embed(texts)
        os.write(log, f"{len(texts)} {time.perf_counter() - began_s:.6f}\n".encode())
        return vectors

    yield noted
    os.close(log)


@app.task("text.embed", queue="embed", timeout=60)
def embed_one(ctx: Context[Embedder], text: str) -> bytes:
    """Embed the text of a task: one call a task."""
    return ctx.env([text])[0]


@app.task("text.embed_batch", queue="embed", timeout=60, batch=64)
def embed_batch(texts: Batch[str, Embedder]) -> list[bytes]:
    """Embed the texts of up to 64 tasks in one call; each task has its own result, and its own retries."""
    return texts.env(texts)


@app.task("texts.embed", queue="embed", timeout=60)
def embed_list(ctx: Context[Embedder], texts: list[str]) -> list[bytes]:
    """Embed the texts of a task: the producer has put many into one, which succeed or fail together."""
    return ctx.env(texts)


def made(way: str, texts: Sequence[str], size: int) -> Iterator[Any]:
    """Yield the tasks of a way to embed some texts."""
    if way == "one":
        yield from map(embed_one.task, texts)
    elif way == "batch":
        yield from map(embed_batch.task, texts)
    else:
        yield from (embed_list.task(list(texts[at : at + size])) for at in range(0, len(texts), size))
