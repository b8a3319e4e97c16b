"""Where Google's C library (upb, inside the ``protobuf`` package) and its Go package read the same bytes differently.

``plain`` reads a message's frame by Go's rules and writes it anew in a form that both read alike, and names each rule
that the input met on the way. The texts and values stay upb's to judge. Each rule was tried against Go.
"""

from dataclasses import dataclass, field

from tests.fuzz.inputs import span, tag, varint

LONG_TAG = "upb refuses a tag of more than 5 bytes; Go reads 10, as for any varint"
LONG_SIZE = "upb refuses a length of more than 5 bytes; Go reads 10"
TENTH_BYTE = "upb drops what the tenth byte of a varint has above bit 63; Go refuses it"
GROUP_NUMBERS = (
    "inside an unknown group upb takes field number 0 and refuses 2**29 to 2**31 - 1; Go the other way round"
)
DEEP_GROUPS = "upb refuses groups nested deeper than its limit of 100; Go's is 10 000"
ODD_ENTRY = "upb keeps a map entry that has unknown fields as unknown; Go puts it into the map"

TEXT_FIELDS = frozenset((1, 2, 3, 4, 7, 10, 14))
NUMBER_FIELDS = frozenset((5, 6, 8, 9, 11, 12, 13))
HEADERS = 15


class RefusedError(Exception):
    """Go refuses the frame."""


@dataclass
class Frame:
    """Read one message, or one map entry, from ``data``."""

    data: bytes
    rules: set[str]
    at: int = field(default=0)

    def varint(self, longer_than_5: str = "") -> int:
        value = 0
        for i in range(10):
            if self.at >= len(self.data):
                raise RefusedError
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << 7 * i
            if i >= 5 and longer_than_5:
                self.rules.add(longer_than_5)
            if byte < 0x80:
                if value >= 2**64:
                    self.rules.add(TENTH_BYTE)
                    raise RefusedError
                return value
        raise RefusedError

    def tag(self, highest: int = 2**29 - 1) -> tuple[int, int]:
        value = self.varint(LONG_TAG)
        if not 1 <= value >> 3 <= highest:
            raise RefusedError
        return value >> 3, value & 7

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise RefusedError
        self.at += size
        return self.data[self.at - size : self.at]

    def span(self) -> bytes:
        return self.take(self.varint(LONG_SIZE))

    def skip(self, number: int, wire_type: int) -> None:
        if wire_type == 0:
            self.varint()
        elif wire_type == 2:
            self.span()
        elif wire_type == 3:
            self.skip_group(number)
        elif wire_type in (1, 5):
            self.take(8 if wire_type == 1 else 4)
        else:
            raise RefusedError

    def skip_group(self, number: int) -> None:
        inside = [number]
        while inside:
            try:
                number, wire_type = self.tag(2**31 - 1)
            except RefusedError:
                self.rules.add(GROUP_NUMBERS)
                raise
            if number >= 2**29:
                self.rules.add(GROUP_NUMBERS)
            if wire_type == 3:
                inside.append(number)
                if len(inside) > 90:
                    self.rules.add(DEEP_GROUPS)
                if len(inside) > 10_001:
                    raise RefusedError
            elif wire_type != 4:
                self.skip(number, wire_type)
            elif inside.pop() != number:
                raise RefusedError


def fields(data: bytes) -> list[tuple[int, int, bytes]]:
    """Return the top-level fields of a message that Go accepts: number, wire type and all their bytes."""
    frame = Frame(data, set())
    found = []
    while frame.at < len(data):
        start = frame.at
        number, wire_type = frame.tag()
        frame.skip(number, wire_type)
        found.append((number, wire_type, data[start : frame.at]))
    return found


def plain(data: bytes) -> tuple[bytes | None, set[str]]:
    """Return ``data`` without what upb and Go read differently, or None if Go refuses it, and the rules met."""
    frame = Frame(data, set())
    out = bytearray()
    try:
        while frame.at < len(data):
            number, wire_type = frame.tag()
            if wire_type == 2 and number in TEXT_FIELDS:
                out += span(number, frame.span())
            elif wire_type == 0 and number in NUMBER_FIELDS:
                out += tag(number, 0) + varint(frame.varint())
            elif wire_type == 2 and number == HEADERS:
                out += span(number, plain_entry(frame.span(), frame.rules))
            else:
                frame.skip(number, wire_type)
    except RefusedError:
        return None, frame.rules
    return bytes(out), frame.rules


def plain_entry(data: bytes, rules: set[str]) -> bytes:
    entry = Frame(data, rules)
    out = bytearray()
    while entry.at < len(data):
        number, wire_type = entry.tag()
        if wire_type == 2 and number <= 2:
            out += span(number, entry.span())
        else:
            rules.add(ODD_ENTRY)
            entry.skip(number, wire_type)
    return bytes(out)
