"""Routing: which node a command of a cluster goes to, and where to after an answer that sends it elsewhere."""

from typing import Any

from redis.exceptions import AskError, MovedError, RedisError, TryAgainError

from fastq.broker.transport.cluster import MAX_REDIRECTS, Routing
from fastq.broker.transport.exchange import Command
from fastq.broker.transport.faults import Unsent
from tests.broker.clusters import slot_of

COMMAND = Command(("GET", "{q}"), "{q}")


def routed(*replies: Any) -> tuple[Routing, int]:
    """Answer a command in each round with one of the replies; return its routing and the number of rounds."""
    routing, rounds = Routing([COMMAND]), 0
    answers = iter(replies)
    while hops := routing.next_round():
        rounds += 1
        lines = routing.lines(hops)
        reply = next(answers)
        routing.receive(hops, [b"OK"] * (len(lines) - 1) + [reply])
    return routing, rounds


def test_a_command_goes_to_the_slot_of_its_key() -> None:
    routing = Routing([COMMAND, Command(("PING",), None)])
    first, second = routing.next_round()
    assert (routing.slot(first), routing.slot(second)) == (slot_of("q"), 0)


def test_an_asked_command_goes_after_asking_and_the_map_stays() -> None:
    routing = Routing([COMMAND])
    routing.receive(routing.next_round(), [AskError("1 10.0.0.1:6379")])
    (hop,) = routing.next_round()
    assert hop.address == ("10.0.0.1", 6379)
    assert routing.lines([hop]) == [Command(("ASKING",), None), COMMAND]
    assert not routing.stale
    routing.receive([hop], [b"OK", b"value"])
    assert routing.replies == [b"value"]
    assert routing.next_round() == []


def test_a_moved_command_goes_to_the_address_and_the_map_is_stale() -> None:
    routing = Routing([COMMAND])
    routing.receive(routing.next_round(), [MovedError("1 10.0.0.1:6379")])
    (hop,) = routing.next_round()
    assert (hop.address, hop.asking, routing.stale) == (("10.0.0.1", 6379), False, True)


def test_redirections_end() -> None:
    routing, rounds = routed(*[MovedError("1 10.0.0.1:6379")] * 20)
    assert rounds == MAX_REDIRECTS
    assert isinstance(routing.replies[0], MovedError)


def test_a_command_that_met_both_nodes_half_way_is_not_tried_again_at_once() -> None:
    error = TryAgainError("TRYAGAIN")
    routing, rounds = routed(error, b"value")
    assert (routing.replies, rounds) == ([error], 1)


def test_a_node_that_cannot_be_reached_is_looked_up_once_more() -> None:
    gone = Unsent(RedisError("refused"))
    routing, rounds = routed(gone, b"value")
    assert (routing.replies, rounds, routing.stale) == ([b"value"], 2, True)
    routing, rounds = routed(gone, gone, b"value")
    assert (routing.replies, rounds) == ([gone], 2)
