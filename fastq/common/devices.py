"""GPUs: which ones this machine offers, and which one a child process has been given.

The environment and the driver's files are read. The driver itself is not asked, because asking would open it.
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
"""The files that a driver opens when a device is used. It opens other files even if devices are only listed."""
_OWN: Final[list[str]] = []


def find_devices(root: Path = _ROOT, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the devices that a process here may use; ``root`` is the parent of dev, proc and sys.

    ``CUDA_VISIBLE_DEVICES`` or ``HIP_VISIBLE_DEVICES`` names the devices. Without these variables, the devices are
    numbers from 0, as many as the driver has files for. So they begin at 0 even in a container that has been given only
    the third device, as the driver's own numbers do.
    """
    for name in VARIABLES:
        if name in environment:
            return _listed(environment[name])
    count = _files_of_nvidia(root) or _files_of_amd(root)
    return tuple(map(str, range(count)))


def _listed(text: str) -> tuple[str, ...]:
    """Return the devices in a variable's text; as in CUDA, an invalid name hides itself and all names after it."""
    devices: list[str] = []
    for device in map(str.strip, text.split(",")):
        if not device or device.startswith("-"):
            break
        devices.append(device)
    return tuple(devices)


def hidden(devices: Iterable[str], environment: Mapping[str, str] = os.environ) -> str:
    """Return why some of these devices cannot be used, or "" if all can: a variable may hide them."""
    for name in VARIABLES:
        if name in environment and (others := set(devices).difference(visible := _listed(environment[name]))):
            named = ", ".join(sorted(others))
            return f"device {named} is not among those of {name}={','.join(visible)!r}"
    return ""


def _files_of_nvidia(root: Path) -> int:
    """Count NVIDIA's GPUs; in a container, one of the two directories may show more GPUs than the container may use."""
    return _least(_count(root / "dev", _NVIDIA), _count(root / "proc/driver/nvidia/gpus", re.compile(".+")))


def _files_of_amd(root: Path) -> int:
    """Count AMD's GPUs. Render nodes alone prove nothing, since GPUs of other makers have them, too."""
    if not (root / "dev/kfd").exists():
        return 0
    gpus = 0
    for node in (root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id"):
        with suppress(OSError):
            gpus += node.read_text().strip() not in ("", "0")  # 0 means that the node is a processor
    return _least(_count(root / "dev/dri", _RENDER), gpus)


def _count(folder: Path, name: re.Pattern[str]) -> int:
    try:
        return sum(1 for each in os.listdir(folder) if name.fullmatch(each))
    except OSError:
        return 0


def _least(one: int, other: int) -> int:
    return min(one, other) or max(one, other)


def share(devices: Iterable[str], children: int) -> dict[str, int]:
    """Return how many children get each device, if devices are dealt out in turn."""
    listed = list(devices)
    shares = dict.fromkeys(listed, 0)
    for number in range(children if listed else 0):
        shares[listed[number % len(listed)]] += 1
    return shares


# In a child ---------------------------------------------------------------------------------------------------------


def assign(device: str) -> None:
    """Give this process a device, before any library looks for devices; child processes inherit the choice."""
    _OWN[:] = [device]
    for name in VARIABLES:
        os.environ[name] = device


def assigned() -> str | None:
    """Return the device of this process, None if it was given none."""
    return _OWN[0] if _OWN else None


def used_by_this_process() -> str:
    """Return what has begun to use a device in this process, "" if nothing has; if so, forks can use no device."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    with suppress(Exception):  # the module torch may be another than PyTorch
        if cuda is not None and cuda.is_initialized():
            return "CUDA is initialized in torch"
    opened = _IN_USE.intersection(_open_files())
    return f"{min(opened)} is open" if opened else ""


def _open_files() -> Iterator[str]:
    with suppress(OSError):  # there is no /proc
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # the file was closed meanwhile
                yield os.readlink(f"/proc/self/fd/{number}")
