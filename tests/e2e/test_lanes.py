"""Lanes through whole servers: what they are told, and what becomes of places when somebody dies."""

from fastq import Client
from tests.e2e.harness import Workers
from tests.e2e.test_death import SHORT, start_short
from tests.e2e.view import View
from tests.waiting import wait_until


def test_a_lane_rests_when_one_of_its_tasks_was_refused(workers: Workers, client: Client, view: View) -> None:
    client.set_limit("default", "acme", concurrency=1)
    first = client.enqueue("asks", b"acme", lane="acme", max_retry=0).id
    second = client.enqueue("asks", b"acme", lane="acme", max_retry=0).id
    other = client.enqueue("told", lane="other").id
    alone = client.enqueue("asks", b"alone").id
    worker = start_short(workers)
    wait_until(lambda: len(view.events_so_far()) == 6)
    told = [(event.what, event.task_id) for event in view.events()]
    acme = [each for each in told if each[1] in (first, second)]
    (refused,) = {first, second} & {task_id for what, task_id in acme if what == "refused"}
    (later,) = {first, second} - {refused}  # within a second, ids decide who is first
    assert acme == [("refused", refused), ("ran", refused), ("ran", later)]
    assert told.index(("ran", other)) < told.index(("ran", refused)), "other lanes go on"
    assert [what for what, task_id in told if task_id == alone] == ["refused", "ran"]
    view.until("", second)
    assert (view.count("processed"), view.count("failed")) == (4, 0), "no attempt was counted"
    assert worker.stop() == 0, worker.text


def test_a_sequence_survives_retries(workers: Workers, client: Client, view: View) -> None:
    client.set_limit("default", "*", concurrency=1, order="strict")
    ids = [client.enqueue("stumble", fails, lane="acme").id for fails in (2, 0, 1, 0)]
    quick = {"retry_delay": "tests.e2e.apps:quick_retry", "delayed_task_check_interval": 0.05}
    worker = workers.start_timed(SHORT, concurrency=4, **quick).is_ready()
    wait_until(lambda: view.count("processed") == 7)
    in_turn = [task_id for task_id, attempts in zip(ids, (3, 1, 2, 1), strict=True) for _ in range(attempts)]
    assert [event.task_id for event in view.events() if event.what == "tried"] == in_turn
    assert worker.stop() == 0, worker.text
