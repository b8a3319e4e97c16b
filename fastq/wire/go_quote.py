r"""Go's quoted strings: what ``%q`` writes and ``strconv.Unquote`` reads.

A byte that is not UTF-8 is a lone surrogate in Python's strings (``surrogateescape``) and ``\xff`` in Go's.
"""

import re

__all__ = ["quote", "unquote"]

_SHORT = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_PLAIN = {escape[1]: char.encode() for char, escape in _SHORT.items()}
_TOKEN = re.compile(
    r"[^\\\n]"
    r"|\\(?:(?P<plain>[abfnrtv\\'\"])|x(?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-3][0-7]{2})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))"
)


def quote(text: str) -> str:
    """Return ``text`` as Go's ``%q`` shows it."""
    return '"' + "".join(map(_escaped, text)) + '"'


def unquote(quoted: str) -> str:
    """Return what a Go string or character literal stands for; a ``ValueError`` says that it is none."""
    mark, inner = quoted[:1], quoted[1:-1]
    if len(quoted) < 2 or mark not in {'"', "`", "'"} or not quoted.endswith(mark):
        raise ValueError(f"not a quoted string: {quoted}")
    if mark == "`":
        if "`" in inner:
            raise ValueError(f"a backquote within backquotes: {quoted}")
        return inner.replace("\r", "")
    text = b"".join(_tokens(inner, mark, quoted)).decode("utf-8", "surrogateescape")
    if mark == "'" and len(text) != 1:
        raise ValueError(f"not one character: {quoted}")
    return text


def _escaped(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _tokens(inner: str, mark: str, quoted: str) -> list[bytes]:
    tokens = []
    position = 0
    while position < len(inner):
        token = _TOKEN.match(inner, position)
        if token is None or token[0] == mark or token["plain"] == ("'" if mark == '"' else '"'):
            raise ValueError(f"misplaced {inner[position]!r} in {quoted}")
        tokens.append(_bytes(token, quoted))
        position = token.end()
    return tokens


def _bytes(token: re.Match[str], quoted: str) -> bytes:
    if plain := token["plain"]:
        return _PLAIN.get(plain, plain.encode())
    if token["byte"] or token["octal"]:
        return bytes([int(token["byte"], 16) if token["byte"] else int(token["octal"], 8)])
    if code := token["short"] or token["long"]:
        number = int(code, 16)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise ValueError(f"{token[0]} is no character, in {quoted}")
        return chr(number).encode()
    return token[0].encode("utf-8", "surrogateescape")
