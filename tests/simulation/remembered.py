"""What a server still remembers: the ids of tasks that can be reached from it."""

import gc
from collections.abc import Iterable
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Final

_LEFT_OUT: Final = (type, ModuleType, CodeType, BuiltinFunctionType)


def remembered(start: object, ids: Iterable[str], but: Iterable[object]) -> dict[str, str]:
    """Return the ids that objects reachable from another hold, each with the way to it; ``but`` are not looked into."""
    wanted: dict[object, str] = {}
    for task_id in ids:
        wanted[task_id] = wanted[task_id.encode()] = task_id
    holders: dict[int, object] = {id(one): None for one in (*but, start)}
    found: dict[str, str] = {}
    waiting = [start]
    kept = []  # so that no id is used again
    while waiting:
        kept.append(holder := waiting.pop())
        for one in _held(holder):
            if isinstance(one, (str, bytes)):
                if one in wanted and wanted[one] not in found:
                    found[wanted[one]] = _way(holder, holders)
            elif id(one) not in holders and gc.is_tracked(one) and not isinstance(one, _LEFT_OUT):
                holders[id(one)] = holder
                waiting.append(one)
    return found


def _way(to: object, holders: dict[int, object]) -> str:
    names = []
    while to is not None:
        names.append(type(to).__name__)
        to = holders[id(to)]
    return ".".join(reversed(names))


def _held(holder: object) -> Iterable[object]:
    if isinstance(holder, FunctionType):  # its globals are everything
        cells = [cell.cell_contents for cell in holder.__closure__ or () if cell != CellType()]
        return [*cells, *(holder.__defaults__ or ())]
    return (holder.__self__,) if isinstance(holder, MethodType) else gc.get_referents(holder)
