"""Devices: which ones a machine offers, by its environment and its driver's files, and which one a process has."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from fastq.common.devices import assigned, find_devices, hidden, share, used_by_this_process


def machine(root: Path, *files: str, **contents: str) -> Path:
    """Make the files of a driver."""
    for name, text in {
        **dict.fromkeys(files, ""),
        **{name.replace("__", "/"): text for name, text in contents.items()},
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_machine_without_gpus_has_no_devices(tmp_path: Path) -> None:
    assert find_devices(tmp_path, {}) == ()


def test_the_gpus_of_nvidia_are_counted(tmp_path: Path) -> None:
    files = ("dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia-caps/nvidia-cap1")
    assert find_devices(machine(tmp_path, *files), {}) == ("0", "1")


def test_a_container_that_has_been_given_the_fourth_counts_from_0(tmp_path: Path) -> None:
    gpus = [f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information" for number in range(4)]
    assert find_devices(machine(tmp_path, "dev/nvidia3", *gpus), {}) == ("0",)


def test_either_place_of_the_driver_will_do(tmp_path: Path) -> None:
    gpus = [f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information" for number in range(3)]
    assert find_devices(machine(tmp_path, *gpus), {}) == ("0", "1", "2")


def test_the_gpus_of_amd_are_counted_and_its_processors_are_not(tmp_path: Path) -> None:
    nodes = {
        f"sys__class__kfd__kfd__topology__nodes__{n}__gpu_id": text for n, text in enumerate(["0\n", "51\n", "52\n"])
    }
    machine(tmp_path, "dev/kfd", "dev/dri/renderD128", "dev/dri/renderD129", "dev/dri/card0", **nodes)
    assert find_devices(tmp_path, {}) == ("0", "1")


def test_render_nodes_of_others_are_no_devices(tmp_path: Path) -> None:
    assert find_devices(machine(tmp_path, "dev/dri/renderD128"), {}) == ()


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("4,5", ("4", "5")),
        (" 4 , GPU-8f2c ", ("4", "GPU-8f2c")),
        ("MIG-GPU-8f2c/1/0", ("MIG-GPU-8f2c/1/0",)),
        ("", ()),
        ("-1", ()),
        ("2,-1,3", ("2",)),
    ],
)
@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"])
def test_a_variable_says_more_than_the_files(name: str, text: str, devices: tuple[str, ...], tmp_path: Path) -> None:
    assert find_devices(machine(tmp_path, "dev/nvidia0"), {name: text}) == devices


def test_a_variable_hides_other_devices() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "4,5"}
    assert hidden(["4"], environment) == hidden(["0"], {}) == ""
    assert hidden(["0", "4"], environment) == "device 0 is not among those of CUDA_VISIBLE_DEVICES='4,5'"


def test_children_get_devices_by_turns() -> None:
    assert share(("0", "1"), 5) == {"0": 3, "1": 2}
    assert share(("0", "1", "2"), 2) == {"0": 1, "1": 1, "2": 0}
    assert share((), 5) == {}


def test_a_process_knows_its_device_and_so_do_those_that_it_starts() -> None:
    program = """
import os, subprocess, sys
from fastq.common.devices import assign, assigned
assign("3")
print(assigned(), os.environ["HIP_VISIBLE_DEVICES"], flush=True)
subprocess.run([sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"], check=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "3", "3"]
    assert assigned() is None


def test_a_process_that_has_used_no_device_has_used_none() -> None:
    assert used_by_this_process() == ""


@pytest.mark.parametrize(("is_initialized", "said"), [(True, "CUDA is initialized in torch"), (False, "")])
def test_torch_tells_whether_it_uses_one(is_initialized: bool, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(is_initialized=lambda: is_initialized)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert used_by_this_process() == said


@pytest.mark.parametrize("file", ["/dev/nvidia-uvm", "/dev/kfd"])
def test_an_open_file_of_the_driver_tells_it_too(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.readlink
    monkeypatch.setattr(os, "readlink", lambda path: file if str(path).endswith("/0") else read(path))
    assert used_by_this_process() == f"{file} is open"
