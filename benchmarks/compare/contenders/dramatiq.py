"""Dramatiq, two processes."""

from typing import Any

from benchmarks.compare.contender import APPS, Contender, Guarantee, Rates, beside, module

WORDS = ("--processes", "2")


def _left(db: Any) -> int:
    return int(db.hlen("dramatiq:default.msgs"))


DRAMATIQ = Contender(
    name="dramatiq",
    title="dramatiq",
    guarantee=Guarantee.LEAST,
    detail="back 60 s after the worker's last heartbeat",
    settings="`--processes 2`, 8 threads each as it comes; bulk by `group`, which enqueues one by one",
    guess=Rates(each=4_400, many=4_600, noop=6_900),
    produce=module("dramatiq_app"),
    work=lambda place: [beside(place, "dramatiq", f"{APPS}.dramatiq_app", *WORDS)],
    work_waiting=lambda place: [beside(place, "dramatiq", f"{APPS}.dramatiq_app", *WORDS, "--threads", "32")],
    settings_waiting="`--threads 32`",
    left=_left,
    put_off=lambda db: int(db.hlen("dramatiq:default.DQ.msgs")),
    environment="dramatiq",
    package="dramatiq",
)
