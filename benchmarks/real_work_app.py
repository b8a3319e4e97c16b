"""Handlers that use as much CPU as their payload says; workers of other trees can import them."""

from typing import Any

from fastq import ServeMux

mux = ServeMux()


def spin(loops: int) -> int:
    """Use CPU: about 0.1 us a loop."""
    total = 0
    for number in range(loops):
        total += number * number % 7
    return total


@mux.handler("bench:spin")
def spin_as_told(task: Any) -> None:
    """Use CPU for as many loops as the payload says."""
    spin(int(task.payload))


@mux.handler("bench:noop")
def noop(task: Any) -> None:
    """Do nothing."""
