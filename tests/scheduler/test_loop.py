"""The loop of a scheduler, over an engine that the test turns."""

from typing import Any

from fastq.scheduler.loop import Loop
from tests.waiting import wait_until


def test_a_wake_up_during_a_turn_makes_another_turn() -> None:
    class Engine:
        turns = 0

        def turn(self) -> float:
            self.turns += 1
            if self.turns == 1:
                loop.wake()
            return 3600.0

        def clear(self) -> None: ...

    engine: Any = Engine()
    loop = Loop(engine, lambda: None)
    loop.start()
    try:
        wait_until(lambda: engine.turns == 2)
    finally:
        loop.stop()
