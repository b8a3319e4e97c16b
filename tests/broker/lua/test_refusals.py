"""Each script whose commands are refused one by one, whose keys are of another type, or on their way to another node.

A script that Redis ends half-way cannot be undone. So a refused call has changed nothing, and one that was not refused
has done all of its work, except for what the wrong key itself stands for.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pytest
from redis import Redis
from redis.exceptions import RedisError

from fastq.broker.operation import Operation
from fastq.broker.scripts import SCRIPTS
from tests.broker.clusters import MIGRATE_MS, Cluster, slot_of
from tests.broker.harness import NOW_S
from tests.broker.lua.scene import CALLS, Q, set_scene
from tests.redis_servers import RedisServer, redis_cluster, redis_server

USER: Final = "limited"
NOT_BEFORE: Final = re.compile("non local key|user_script")
"""In the text of an error that has ended a script, not kept it from beginning."""
LEFT: Final = {"SREM": "asynq:{q}:groups:", "ZREM": "asynq:{q}:scheduled_groups:"}
"""Of a group without tasks: a user without these rights does not take it off its lists."""
CALL: Final = re.compile(r'redis\.p?call\(\s*"(\w+)"')

LOOK: Final = """
local found = {}
for _, key in ipairs(redis.call("KEYS", "*")) do
  local kind, value = redis.call("TYPE", key).ok, nil
  if kind == "hash" then value = redis.call("HGETALL", key)
  elseif kind == "list" then value = redis.call("LRANGE", key, 0, -1)
  elseif kind == "zset" then value = redis.call("ZRANGE", key, 0, -1, "WITHSCORES")
  elseif kind == "set" then value = redis.call("SMEMBERS", key)
  else value = {redis.call("GET", key)} end
  found[#found + 1] = {key, kind, value, redis.call("PTTL", key) >= 0 and 1 or 0}
end
return found
"""
SAVE: Final = """
local found = {}
for _, key in ipairs(redis.call("KEYS", "*")) do
  found[#found + 1] = key
  found[#found + 1] = redis.call("DUMP", key)
  found[#found + 1] = math.max(0, redis.call("PTTL", key))
end
return found
"""
RESTORE: Final = """
redis.call("FLUSHDB")
for at = 1, #ARGV, 3 do redis.call("RESTORE", ARGV[at], ARGV[at + 2], ARGV[at + 1]) end
"""


class Value(NamedTuple):
    """What a key holds, in an order of its own, and whether it expires."""

    kind: bytes
    content: tuple[Any, ...]
    expires: bool


Keyspace = Mapping[str, Value]
KEEP: Final = """
for _, key in ipairs(redis.call("KEYS", "*")) do redis.call("COPY", key, key, "DB", 1) end
"""
RESET: Final = """
redis.call("FLUSHDB")
redis.call("SELECT", 1)
for _, key in ipairs(redis.call("KEYS", "*")) do redis.call("COPY", key, key, "DB", 0) end
"""


def send(db: Any, words: Sequence[Any], *, is_asked: bool = False) -> Any:
    """Return the reply to a command, an error as it is."""
    with db.pipeline(transaction=False) as pipeline:
        if is_asked:
            pipeline.execute_command("ASKING")
        pipeline.execute_command(*words)
        return pipeline.execute(raise_on_error=False)[-1]


def call(db: Any, operation: Operation[Any], *, is_asked: bool = False) -> Any:
    """Return the reply to a call, an error as it is."""
    return send(db, operation.words(), is_asked=is_asked)


def look(db: Any, *, is_asked: bool = False) -> Keyspace:
    """Return all that there is; a node to which a slot is on its way has to be asked for it."""
    found = send(db, ("EVAL", LOOK, 0), is_asked=is_asked)
    return {key.decode(): value_of(kind, tuple(value), expires) for key, kind, value, expires in found}


@lru_cache(1000)  # most keys are as they were at the look before
def value_of(kind: bytes, value: tuple[Any, ...], expires: int) -> Value:
    """Return what a key holds, from what Redis says."""
    content = value if kind == b"list" else tuple(sorted(value))
    if kind in (b"hash", b"zset"):
        content = tuple(sorted(zip(value[::2], map(masked, value[1::2]), strict=True)))
    return Value(kind, content, bool(expires))


def masked(word: bytes) -> bytes:
    """Mask a time by the clock of Redis, in microseconds, as lanes have them."""
    return b"now" if len(word) == 16 and word.isdigit() and word < str(NOW_S * 10**6).encode() else word


def differences(one: Keyspace, other: Keyspace) -> list[str]:
    """Return what differs, to be read."""
    return [
        f"{key}: {one.get(key)} -> {other.get(key)}" for key in sorted({*one, *other}) if one.get(key) != other.get(key)
    ]


class Stage:
    """A server with the scene, which is set again before each call."""

    def __init__(self, server: RedisServer) -> None:
        self.db: Any = server.client()
        self.user: Any = Redis(unix_socket_path=server.socket_path, username=USER, password="word")
        self.db.flushall()
        set_scene(self.db)
        self.saved = self.db.eval(SAVE, 0)
        self.db.eval(KEEP, 0)
        self._reset = self.db.script_load(RESET)
        self.before = look(self.db)
        for name in SCRIPTS:
            self.db.script_load(SCRIPTS[name].text)

    def reset(self) -> None:
        self.db.evalsha(self._reset, 0)

    def may_all_but(self, *commands: str) -> None:
        rules = (f"-{command}" for command in commands)
        self.db.execute_command("ACL", "SETUSER", USER, "reset", "on", ">word", "~*", "&*", "+@all", *rules)

    def reference(self, operation: Operation[Any]) -> tuple[Any, Keyspace]:
        """Return the reply and the keyspace after a call that nothing refuses."""
        self.reset()
        return self.db.execute_command(*operation.words()), look(self.db)

    def touched(self, operation: Operation[Any]) -> list[str]:
        """Return the keys that a call touches, declared or built."""
        self.reset()
        with self.db.monitor() as monitor:
            self.user.execute_command(*operation.words())
            self.user.ping()
            found: set[str] = set()
            for line in monitor.listen():
                words = line["command"].split()
                if words[0] == "PING":
                    break
                if line["client_type"] == "lua" and words[0] != "SCAN":
                    found.update(word for word in words[1:] if word.startswith("asynq:"))
        return sorted(found)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with redis_server() as server:
        yield Stage(server)


CASES: Final = [(name, nth) for name in SCRIPTS for nth in range(len(CALLS.get(name, ())))]


def test_every_script_has_a_call() -> None:
    assert sorted(CALLS) == list(SCRIPTS)
    assert {call.script.name for calls in CALLS.values() for call in calls if call.script} == {*CALLS}


@pytest.mark.parametrize(("name", "nth"), CASES)
def test_a_refused_command_loses_nothing(name: str, nth: int, stage: Stage) -> None:
    if not stage.db.eval("return redis.acl_check_cmd and 1", 0):
        pytest.skip("a script cannot ask this server for its user's rights: Redis 6.2")
    operation = CALLS[name][nth]
    reply, after = stage.reference(operation)
    wrong: dict[str, list[str]] = {}
    for command in sorted({*CALL.findall(SCRIPTS[name].text)}):
        stage.reset()
        stage.may_all_but(command)
        answer = call(stage.user, operation)
        if isinstance(answer, RedisError):
            assert re.search("permission|can't run", str(answer)), answer
            found = differences(stage.before, look(stage.db))
        else:
            found = differences(after, look(stage.db)) + ([] if answer == reply else [f"{reply} -> {answer}"])
            if command in LEFT:
                found = [line for line in found if not line.startswith(LEFT[command])]
        if found:
            wrong[command] = found
    assert wrong == {}


def wrong_kinds(value: Value | None) -> tuple[str, ...]:
    """Return the types to try in place of a value: a list, or a string, or both where there is none."""
    if value is None:
        return ("list", "string")
    return ("list",) if value.kind == b"string" else ("string",)


def put_wrong(db: Any, key: str, kind: str) -> None:
    """Put a value of another type in place of a key."""
    db.delete(key)
    if kind == "list":
        db.rpush(key, "wrong")
    else:
        db.set(key, "wrong")


def half_done(key: str, whole: Keyspace, before: Keyspace, here: Keyspace, after: Keyspace) -> list[str]:
    """Return what a call that passed a wrong key has done to others: neither nothing nor all of its work.

    ``whole`` is the keyspace before the key was wrong: a task whose place the key was is in no list.
    """
    ids = {one.rpartition(":t:")[2] for one in (*before, *here, *after) if ":t:" in one} - {key.rpartition(":t:")[2]}
    found = []
    if key in whole and whole[key].kind == b"zset":
        ids -= {member.decode() for member, _ in whole[key].content}
    looks = [(keyspace, places_in(keyspace, key)) for keyspace in (before, here, after)]
    for task_id in sorted(ids):
        states = [(keyspace.get(f"asynq:{{{Q}}}:t:{task_id}"), places[task_id.encode()]) for keyspace, places in looks]
        if states[1] not in (states[0], states[2]):
            found.append(f"{task_id}: {states[0]} -> {states[1]}, not {states[2]}")
    return found


def places_in(keyspace: Keyspace, without: str) -> Mapping[bytes, list[str]]:
    """Return for each id the lists and sorted sets that have it, one key left out."""
    places: dict[bytes, list[str]] = defaultdict(list)
    for key, value in sorted(keyspace.items()):
        if key != without and value.kind in (b"zset", b"list"):
            for member in {pair[0] for pair in value.content} if value.kind == b"zset" else set(value.content):
                places[member].append(key)
    return places


@pytest.mark.parametrize(("name", "nth"), CASES)
def test_a_key_of_another_type_loses_nothing(name: str, nth: int, stage: Stage) -> None:
    operation = CALLS[name][nth]
    stage.may_all_but()
    _, after = stage.reference(operation)
    wrong: dict[str, list[str]] = {}
    touched = {*stage.touched(operation), *operation.keys}
    for key, kind in [(one, kind) for one in sorted(touched) for kind in wrong_kinds(stage.before.get(one))]:
        stage.reset()
        put_wrong(stage.db, key, kind)
        before = look(stage.db)
        if isinstance(call(stage.db, operation), RedisError):
            found = differences(before, look(stage.db))
        else:
            found = half_done(key, stage.before, before, look(stage.db), after)
        if found:
            wrong[f"{key} is a {kind}"] = found
    assert wrong == {}


class Move:
    """The scene in a slot that is on its way from one node of a cluster to another."""

    def __init__(self, cluster: Cluster, stage: Stage) -> None:
        self._cluster = cluster
        self._source = next(node for node in cluster.nodes if cluster.holds(node, Q))
        self._target = next(node for node in cluster.nodes if node is not self._source)
        self._nodes: list[Any] = [node.client() for node in (self._source, self._target)]
        saved = zip(*[iter(stage.saved)] * 3, strict=True)
        self._saved = [word for entry in saved if entry[0].startswith(f"asynq:{{{Q}}}:".encode()) for word in entry]
        for node in self._nodes:
            for name in SCRIPTS:
                node.script_load(SCRIPTS[name].text)
        self._restore = self._nodes[0].script_load(RESTORE)
        cluster.begin_move(Q, self._source, self._target)

    def begin(self, *moved: str) -> None:
        """Set the scene at the source, and move some of its keys."""
        self._nodes[1].flushall()
        with self._nodes[0].pipeline(transaction=False) as pipeline:
            pipeline.execute_command("CLUSTER", "SETSLOT", slot_of(Q), "STABLE")
            pipeline.evalsha(self._restore, 0, *self._saved)
            pipeline.execute_command("CLUSTER", "SETSLOT", slot_of(Q), "MIGRATING", self._cluster.id_of(self._target))
            to = ("127.0.0.1", self._target.port, "", 0, MIGRATE_MS, "KEYS")
            pipeline.execute_command("MIGRATE", *to, *moved)
            pipeline.execute()

    def look(self) -> Keyspace:
        """Return what both nodes have, and that no key is at both."""
        here, there = look(self._nodes[0]), look(self._nodes[1], is_asked=True)
        assert not {*here} & {*there}, "a move would be refused"
        return {**here, **there}

    def run(self, operation: Operation[Any]) -> bool:
        """Call as clients do, who are sent to the other node; return whether one of them has done it."""
        for node, is_asked in zip(self._nodes, (False, True), strict=True):
            reply = call(node, operation, is_asked=is_asked)
            if not isinstance(reply, RedisError):
                return True
            assert not NOT_BEFORE.search(str(reply)), reply
        return False


@pytest.fixture(scope="module")
def move(stage: Stage) -> Iterator[Move]:
    with redis_cluster() as nodes:
        yield Move(Cluster(nodes), stage)


ON_ONE_SLOT: Final = [
    (name, nth) for name, nth in CASES if all(key.startswith(f"asynq:{{{Q}}}:") for key in CALLS[name][nth].keys)
]


@pytest.mark.parametrize(("name", "nth"), ON_ONE_SLOT)
def test_a_slot_on_its_way_loses_nothing(name: str, nth: int, stage: Stage, move: Move) -> None:
    operation = CALLS[name][nth]
    stage.may_all_but()
    after = of_queue(stage.reference(operation)[1])
    before = of_queue(stage.before)
    wrong: dict[str, list[str]] = {}
    touched = [key for key in stage.touched(operation) if key in before]
    for moved in (*([key] for key in touched), touched[:-1]):
        if moved:
            move.begin(*moved)
            found = differences(after if move.run(operation) else before, move.look())
            if found:
                wrong[" ".join(moved)] = found
    assert wrong == {}


def of_queue(keyspace: Keyspace) -> Keyspace:
    return {key: value for key, value in keyspace.items() if key.startswith(f"asynq:{{{Q}}}:")}
