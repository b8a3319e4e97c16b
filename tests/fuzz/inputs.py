"""Hostile TaskMessage bytes: odd but well-formed messages, golden ones, and mutations of both, all from one seed."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "vectors.json").read_text())

NUMBERS = (0, 1, 5, 127, 128, 300, 2**31 - 1, 2**31, 2**32 + 5, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 7)
FIELD_NUMBERS = (*range(1, 16), *range(1, 16), 16, 17, 100, 2047, 2**29 - 1)
BAD_FIELD_NUMBERS = (0, 2**29, 2**31 - 1, 2**31, 2**32 + 1, 2**61 - 1)
TEXTS = (b"", b"t", b"email:welcome", b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"a\x00b", b"fastq-reply", b"k" * 130)
BAD_TEXTS = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"ok\x80")
BYTES = (0x00, 0x01, 0x07, 0x08, 0x0A, 0x0B, 0x0C, 0x12, 0x7A, 0x7F, 0x80, 0x81, 0xC3, 0xF0, 0xFF)


def varint(value: int, width: int = 1) -> bytes:
    """Encode ``value`` in at least ``width`` bytes."""
    out = bytearray()
    while value >= 0x80 or len(out) + 1 < width:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, wire_type: int, width: int = 1) -> bytes:
    return varint(number << 3 | wire_type, width)


def span(number: int, body: bytes, width: int = 1) -> bytes:
    """Encode a length-delimited field, its tag and length in at least ``width`` bytes each."""
    return tag(number, 2, width) + varint(len(body), width) + body


def nested_groups(depth: int, number: int = 20) -> bytes:
    return tag(number, 3) * depth + tag(number, 4) * depth


def odd_field(rng: Random, depth: int = 0) -> bytes:
    """Return one field that a decoder meets rarely, most often a valid one."""
    number = rng.choice(FIELD_NUMBERS if rng.random() < 0.98 else BAD_FIELD_NUMBERS)
    width = 1 if rng.random() < 0.95 else rng.choice((2, 5, 6, 10))
    choice = rng.random()
    if choice < 0.4:
        return span(number, rng.choice(TEXTS if rng.random() < 0.97 else BAD_TEXTS), width)
    if choice < 0.6:
        value = rng.choice(NUMBERS) if rng.random() < 0.7 else rng.getrandbits(rng.randint(1, 64))
        return tag(number, 0, width) + varint(value, rng.choice((1, 1, 1, 3, 10)))
    if choice < 0.75 and depth < 3:
        entry = b"".join(odd_field(rng, depth + 1) for _ in range(rng.randint(0, 3)))
        return span(15, rng.choice((b"", span(1, rng.choice(TEXTS)))) + entry + rng.choice((b"", span(2, b"v"))))
    if choice < 0.9 and depth < 3:
        body = b"".join(odd_field(rng, depth + 1) for _ in range(rng.randint(0, 2)))
        return tag(number, 3) + body + tag(number if rng.random() < 0.97 else 3, 4)
    return rng.choice((tag(number, 1) + rng.randbytes(8), tag(number, 5) + rng.randbytes(4)))


def odd_message(rng: Random) -> bytes:
    return b"".join(odd_field(rng) for _ in range(rng.randint(0, 8)))


def mutate(rng: Random, data: bytes) -> bytes:
    """Return ``data`` with one to four small damages."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randint(0, len(out))
        kind = rng.randrange(7)
        if kind == 0:
            out[at : at + 1] = bytes((rng.choice(BYTES),))
        elif kind == 1 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[at:at] = rng.choice((rng.randbytes(1), varint(rng.choice(NUMBERS), rng.choice((1, 10, 11)))))
        elif kind == 3:
            del out[at : at + rng.randint(1, 4)]
        elif kind == 4:
            del out[at:]
        elif kind == 5:
            out[at:at] = out[at : at + rng.randint(1, 40)]
        else:
            out[at:at] = odd_field(rng)
    return bytes(out)


def golden_messages() -> list[bytes]:
    """Return the TaskMessage bytes that Go wrote or was given."""
    cases = [case["encoded"] for case in GOLDEN["cases"] if case["message"] == "TaskMessage" and "encoded" in case]
    inputs = [case["input"] for case in GOLDEN["decode_cases"] if case["message"] == "TaskMessage"]
    return [bytes.fromhex(text) for text in cases + inputs]


def hostile_inputs(seed: int, count: int) -> Iterator[bytes]:
    """Yield ``count`` inputs, the same ones for the same seed."""
    rng = Random(seed)
    known = [data for data in golden_messages() if len(data) < 4096]
    for _ in range(count):
        choice = rng.random()
        if choice < 0.25:
            yield odd_message(rng)
        elif choice < 0.55:
            yield mutate(rng, odd_message(rng))
        elif choice < 0.95:
            yield mutate(rng, rng.choice(known))
        else:
            yield rng.randbytes(rng.randint(0, 24))
