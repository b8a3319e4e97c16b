from fastq.inspector.acl import acl_rules
from tests.cli.commands import NOWHERE, Fastq


def test_the_rules_of_a_role_are_one_line() -> None:
    assert Fastq(NOWHERE).done("acl", "worker", "--queues", "emails, video-*") == (
        acl_rules(["worker"], ["emails", "video-*"]) + "\n"
    )
    assert Fastq(NOWHERE).done("acl", "producer", "inspector") == acl_rules(["producer", "inspector"]) + "\n"


def test_a_role_or_queue_that_is_none_is_misuse() -> None:
    assert "'worked' is not one of 'producer', 'worker', " in Fastq(NOWHERE).failure("acl", "worked", code=2)
    assert "'a b' is no pattern of queues" in Fastq(NOWHERE).failure("acl", "worker", "--queues", "a b", code=2)
    assert "'' is no pattern of queues" in Fastq(NOWHERE).failure("acl", "worker", "--queues", "a,", code=2)
