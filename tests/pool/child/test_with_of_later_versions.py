"""Pythons that enter ``with`` by a call: a thread that is there is not told to end, as its lock would stay taken."""

import subprocess
import sys

import pytest

PROGRAM = """
import dis, opcode, sys, threading

def waits(entered, gate):
    gate()

def waits_in_a_block(entered, gate):
    try:
        gate()
    finally:
        pass

def before_call(function):
    names = [each.opname for each in dis.get_instructions(function)]
    return opcode.opmap[names[names.index("CALL") - 1]]

faked = sys.argv[1]
if faked == "3.14":
    opcode.opmap["LOAD_SPECIAL"] = before_call(waits)
elif faked == "later":
    sys.version_info = (3, 99)
from fastq.pool.child.work import takes_lock

for function in (waits, waits_in_a_block):
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=function, args=(None, lock.__enter__), daemon=True)
    thread.start()
    while (frame := sys._current_frames().get(thread.ident)) is None or frame.f_code is not function.__code__:
        pass
    while dis.opname[frame.f_code.co_code[frame.f_lasti]] != "CALL":
        pass
    print(takes_lock(frame))
    lock.release()
    thread.join()
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python is one of them")
@pytest.mark.parametrize(
    ("faked", "told"), [("", ["False", "False"]), ("3.14", ["True", "True"]), ("later", ["False", "True"])]
)
def test_nothing_is_raised_where_a_with_may_take_its_lock(faked: str, told: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, faked], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (told, "")
