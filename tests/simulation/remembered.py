"""What a server still remembers: the ids of tasks that can be reached from it."""

import gc
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Final

_LEFT_OUT: Final = (type, ModuleType, CodeType, BuiltinFunctionType)


def remembered(start: object, ids: Iterable[str], but: Iterable[object]) -> dict[str, str]:
    """Return the ids that objects reachable from another hold, each with the way to it; ``but`` are not looked into."""
    wanted: dict[object, str] = {}
    for task_id in ids:
        wanted[task_id] = wanted[task_id.encode()] = task_id
    ways = {id(one): "" for one in but} | {id(start): type(start).__name__}
    found: dict[str, str] = {}
    waiting = [start]
    kept = []  # so that no id is used again
    while waiting:
        kept.append(holder := waiting.pop())
        for one in _held(holder):
            if isinstance(one, (str, bytes)):
                if one in wanted:
                    found.setdefault(wanted[one], ways[id(holder)])
            elif id(one) not in ways and gc.is_tracked(one) and not isinstance(one, _LEFT_OUT):
                ways[id(one)] = f"{ways[id(holder)]}.{type(one).__name__}"
                waiting.append(one)
    return found


def _held(holder: object) -> Iterator[object]:
    if isinstance(holder, FunctionType):  # its globals are everything
        yield from (cell.cell_contents for cell in holder.__closure__ or () if cell != CellType())
        yield from holder.__defaults__ or ()
    elif isinstance(holder, MethodType):
        yield holder.__self__
    else:
        yield from gc.get_referents(holder)
