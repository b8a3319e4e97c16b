"""GPUs: which ones this machine offers, and which one a child process has been given.

No driver is asked, since that would open it. The environment and the driver's files tell enough.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

VARIABLES: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_ROOT: Final = Path("/")
_NVIDIA: Final = re.compile(r"nvidia\d+")
_RENDER: Final = re.compile(r"renderD\d+")
_IN_USE: Final = frozenset({"/dev/nvidia-uvm", "/dev/kfd"})
"""The files that a driver opens once a device is used; it opens other files even to look at a device."""
_OWN: Final[list[str]] = []


def find_devices(root: Path = _ROOT, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the devices that a process here may use; ``root`` is where dev, proc and sys are.

    ``CUDA_VISIBLE_DEVICES`` or ``HIP_VISIBLE_DEVICES`` names them. Without these variables, they are the numbers of the
    devices for which the driver has files. The numbers begin at 0, as for the driver, even in a container that has been
    given only the third device.
    """
    for name in VARIABLES:
        if name in environment:
            return _listed(environment[name])
    count = _files_of_nvidia(root) or _files_of_amd(root)
    return tuple(map(str, range(count)))


def _listed(text: str) -> tuple[str, ...]:
    """Return the devices in a variable; as in CUDA, an invalid one hides itself and all after it."""
    devices: list[str] = []
    for device in map(str.strip, text.split(",")):
        if not device or device.startswith("-"):
            break
        devices.append(device)
    return tuple(devices)


def hidden(devices: Iterable[str], environment: Mapping[str, str] = os.environ) -> str:
    """Return why some of these devices cannot be used, "" if all can: a variable may name only other devices."""
    for name in VARIABLES:
        if name in environment and (others := set(devices).difference(visible := _listed(environment[name]))):
            named = ", ".join(sorted(others))
            return f"device {named} is not among those of {name}={','.join(visible)!r}"
    return ""


def _files_of_nvidia(root: Path) -> int:
    """Count the GPUs of NVIDIA; in a container, one of the two places may show more than it may use."""
    return _least(_count(root / "dev", _NVIDIA), _count(root / "proc/driver/nvidia/gpus", re.compile(".+")))


def _files_of_amd(root: Path) -> int:
    """Count the GPUs of AMD; other makers have render nodes, too."""
    if not (root / "dev/kfd").exists():
        return 0
    gpus = 0
    for node in (root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id"):
        with suppress(OSError):
            gpus += node.read_text().strip() not in ("", "0")  # for a processor, it is 0
    return _least(_count(root / "dev/dri", _RENDER), gpus)


def _count(folder: Path, name: re.Pattern[str]) -> int:
    try:
        return sum(1 for each in os.listdir(folder) if name.fullmatch(each))
    except OSError:
        return 0


def _least(one: int, other: int) -> int:
    return min(one, other) or max(one, other)


def share(devices: Iterable[str], children: int) -> dict[str, int]:
    """Return how many children each device gets, by turns."""
    listed = list(devices)
    shares = dict.fromkeys(listed, 0)
    for number in range(children if listed else 0):
        shares[listed[number % len(listed)]] += 1
    return shares


# In a child ---------------------------------------------------------------------------------------------------------


def assign(device: str) -> None:
    """Give this process a device, before anything looks for devices; child processes inherit it."""
    _OWN[:] = [device]
    for name in VARIABLES:
        os.environ[name] = device


def assigned() -> str | None:
    """Return the device of this process, None if it was given none."""
    return _OWN[0] if _OWN else None


def used_by_this_process() -> str:
    """Return what has begun to use a device in this process, "" if nothing has. After that, forks can use no device."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    with suppress(Exception):  # another module may have the name torch
        if cuda is not None and cuda.is_initialized():
            return "CUDA is initialized in torch"
    opened = _IN_USE.intersection(_open_files())
    return f"{min(opened)} is open" if opened else ""


def _open_files() -> Iterator[str]:
    with suppress(OSError):  # without /proc
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # closed meanwhile
                yield os.readlink(f"/proc/self/fd/{number}")
