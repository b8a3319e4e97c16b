"""What a server still remembers: the ids of tasks that can be reached from it."""

import gc
from collections.abc import Iterable
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType, NoneType
from typing import Final

_TEXT, _LEFT_OUT, _LOOKED_INTO = range(3)
_HOLD_NOTHING: Final = (int, bool, float, NoneType)


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
            use = _USES[type(one)]
            if use == _TEXT:
                if one in wanted and wanted[one] not in found:
                    found[wanted[one]] = _way(holder, holders)
            elif use == _LOOKED_INTO and id(one) not in holders and gc.is_tracked(one):
                holders[id(one)] = holder
                waiting.append(one)
    return found


class _Uses(dict[type, int]):
    """What is done with objects of a type."""

    def __missing__(self, kind: type) -> int:
        is_left_out = kind in _HOLD_NOTHING or issubclass(kind, (type, ModuleType, CodeType, BuiltinFunctionType))
        self[kind] = _TEXT if issubclass(kind, (str, bytes)) else _LEFT_OUT if is_left_out else _LOOKED_INTO
        return self[kind]


_USES: Final = _Uses()


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
