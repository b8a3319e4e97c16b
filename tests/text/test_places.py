"""How much of the places of servers is in use, told by kind: coroutines are no room for plain tasks."""

from dataclasses import replace

from fastq import Places, ServerInfo
from fastq.text.places import fullest, places_of, plural_of, use_text

GO = ServerInfo("g", "host", 1, 10, {}, False, None, "active", ())
MIXED = replace(GO, concurrency=416, places=(Places("thread", 16, 16), Places("coroutine", 1, 400)))


def test_places_are_added_up_by_kind() -> None:
    of_both = places_of([MIXED, MIXED])
    assert use_text(of_both) == "32 of 32 threads, 2 of 800 coroutines"
    assert plural_of(of_both) == "32 threads, 800 coroutines"
    assert fullest(of_both) == 1.0


def test_a_server_that_tells_no_places_has_its_concurrency() -> None:
    assert (use_text(places_of([GO])), plural_of(places_of([GO, GO]))) == ("0 of 10", "20")
    assert use_text(places_of([MIXED, GO])) == "16 of 16 threads, 1 of 400 coroutines, 0 of 10 others"
    assert (places_of([]), use_text([]), fullest([])) == ([], "", 0.0)
