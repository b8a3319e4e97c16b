"""The hash by which a periodic task's configuration is told from a changed one."""

from collections.abc import Iterable
from hashlib import sha256

__all__ = ["config_hash"]


def config_hash(cronspec: str, task_type: str, payload: bytes | None, option_strings: Iterable[str]) -> str:
    """Return asynq's hash of a configuration; options count in any order, ``None`` as an empty payload.

    The parts are joined without separators, as asynq does: type ``t`` with payload ``p`` is type ``tp`` with none.
    """
    text = sha256(cronspec.encode() + task_type.encode() + (payload or b""))
    for option in sorted(option.encode() for option in option_strings):
        text.update(option)
    return text.hexdigest()
