"""The account that the fault program of lanes keeps: what it must find wrong, it does."""

from benchmarks.lanes_account import BIG, EACH, PLAIN, WHOLE, Account, Level, Rule

RULES = {EACH: Rule(2), "p:*": Rule(3), "rated": Rule(interval_s=1.0, burst=2), BIG: Rule(), WHOLE: Rule(5)}


class Told:
    """An account, and the lines that it hears."""

    def __init__(self, **waiting: int) -> None:
        self.account = Account("q", RULES, waiting)

    def hear(self, at_s: float, command: str, *words: str, of: str = "lua") -> None:
        self.account.hear(" ".join([f"+{at_s:.6f} [0 {of}]", *(f'"{word}"' for word in (command, *words))]))

    def put(self, at_s: float, *ids: str) -> None:
        for one in ids:
            self.hear(at_s, "HSET", f"asynq:{{q}}:t:{one}", "msg", r"\x0a\"", "state", "aggregating")

    def take(self, at_s: float, *ids: str) -> None:
        self.hear(at_s, "TIME")
        for one in ids:
            self.hear(at_s, "HSET", f"asynq:{{q}}:t:{one}", "state", "active")

    def end(self, at_s: float, *ids: str) -> None:
        self.hear(at_s, "DEL", *(f"asynq:{{q}}:t:{one}" for one in ids))

    def __getitem__(self, lane: str) -> Level:
        return self.account.levels[lane]


def test_limits_are_exceeded_when_more_are_active_at_once() -> None:
    told = Told()
    told.put(0, "a/1", "a/2", "a/3", "p:x/1", "p:x/2", "p:y/1", "p:y/2")
    told.take(1, "a/1", "a/2", "p:x/1", "p:x/2", "p:y/1")
    assert told.account.exceeded() == []
    told.end(2, "a/1")
    told.take(3, "a/3")
    assert (told.account.exceeded(), told.account.done) == ([], {"a/1"})
    told.hear(4, "HSET", "asynq:{q}:t:a/2", "msg", "m", "state", "retry")
    told.take(5, "p:y/2")
    assert told.account.exceeded() == ["p:*: 4 > 3"]
    told.take(6, f"{PLAIN}/1")
    assert told.account.exceeded() == ["queue: 6 > 5", "p:*: 4 > 3"]


def test_a_lane_idles_while_it_could_start_a_task() -> None:
    told = Told()
    told.put(10, "a/1", "a/2", "a/3", "rated/1", "rated/2", "rated/3")
    told.take(11, "a/1", "a/2", "rated/1", "rated/2")
    told.take(14.5, "rated/3")
    assert (told["a"].idle, told["rated"].idle) == (1, 2.5), "full is not idle, nor is out of tokens"
    told.end(15, "a/1")
    told.take(19, "a/3")
    assert (told["a"].idle, told["a"].without_start) == (4, 8)


def test_a_start_before_its_time_is_ahead() -> None:
    told = Told(rated=9)
    told.take(1, "rated/1", "rated/2")
    told.take(2, "rated/3")
    assert told["rated"].ahead == 0
    told.take(2.75, "rated/4")
    assert told["rated"].ahead == 0.25


def test_what_the_large_lane_got_before_a_single_task_is_counted_by_calls() -> None:
    told = Told(big=9)
    told.put(1, "one-0/1")
    told.take(2, "big/1", "big/2")
    told.take(3, "big/3")
    told.take(4, "one-0/1", "big/4")
    assert told["one-0"].big_before == 2


def test_what_clients_send_themselves_is_not_heard() -> None:
    told = Told()
    told.hear(1, "HSET", "asynq:{q}:t:a/1", "state", "active", of="127.0.0.1:1")
    assert told.account.levels == {}


def test_what_waited_before_and_is_deleted_waits_no_more() -> None:
    told = Told(big=3)
    told.take(1, "big/0")
    told.end(2, "big/1", "big/2")
    assert told["big"].waiting == 0
