"""What the handlers compute from a piece of text. The audit computes it again to check their results."""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeAlias

Facts: TypeAlias = dict[str, Any]

_SHINGLE: Final = 3


def fingerprint(text: bytes) -> Facts:
    """Hash a text, and find the smallest hash of three words in a row: near-duplicates tend to share that hash."""
    words = text.split()
    shingles = (b" ".join(words[at : at + _SHINGLE]) for at in range(max(1, len(words) - _SHINGLE + 1)))
    smallest = min(blake2b(shingle, digest_size=8).digest() for shingle in shingles)
    return {"blake2b": blake2b(text, digest_size=16).hexdigest(), "minhash": smallest.hex()}


def squeeze(text: bytes) -> Facts:
    """Compress a text, and check that it decompresses to the same text."""
    packed = zlib.compress(text, 9)
    return {"bytes": len(text), "packed": len(packed), "intact": zlib.decompress(packed) == text}


def features(text: bytes) -> Facts:
    """Count the words of a text."""
    counts = Counter(text.decode().split())
    return {"words": counts.total(), "distinct": len(counts), "most_common": counts.most_common(3)}


WORK: Final[Mapping[str, Callable[[bytes], Facts]]] = {
    "text:fingerprint": fingerprint,
    "text:squeeze": squeeze,
    "text:features": features,
}
"""The work of the handler for each of these task types."""
