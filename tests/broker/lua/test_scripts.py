"""Checks every Lua script against its header, against keys.py, and against Redis."""

import ast
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from redis import Redis

import fastq
from fastq.broker.scripts import SCRIPTS
from fastq.broker.twins import TWINS, twin_of
from fastq.wire import keys
from tests.broker.lua.headers import ScriptHeader, parse_header

PACKAGE = Path(fastq.__file__).parent
LUA = PACKAGE / "broker" / "lua"

KEY_PATTERNS: dict[str, str] = {
    **{
        make.__name__: make("q")
        for make in (
            keys.active,
            keys.again,
            keys.aggregation_sets,
            keys.app_limits,
            keys.archive_rule,
            keys.archived,
            keys.bell,
            keys.completed,
            keys.error_prefix,
            keys.errors,
            keys.failed_total,
            keys.full,
            keys.group_prefix,
            keys.groups,
            keys.held_prefix,
            keys.lease,
            keys.limits,
            keys.moved,
            keys.moving,
            keys.paused,
            keys.pending,
            keys.pool_prefix,
            keys.processed_total,
            keys.queue_prefix,
            keys.quota,
            keys.rates,
            keys.retry,
            keys.scheduled,
            keys.scheduled_groups,
            keys.task_prefix,
            keys.turns,
        )
    },
    "aggregation_set": keys.aggregation_set("q", "{group}", "{set}"),
    "failed": keys.failed("q", date(2000, 1, 1)).replace("2000-01-01", "{day}"),
    "group": keys.group("q", "{group}"),
    "lost": keys.lost("q", date(2000, 1, 1)).replace("2000-01-01", "{day}"),
    "processed": keys.processed("q", date(2000, 1, 1)).replace("2000-01-01", "{day}"),
    "history_hours": keys.history_hours("q", date(2000, 1, 1)).replace("2000-01-01", "{day}"),
    "history_minutes": keys.history_minutes("q", datetime(2000, 1, 1, tzinfo=UTC)).replace("2000-01-01T00", "{hour}"),
    "entries": keys.scheduler_entries("host:pid:id"),
    "notice": keys.server_notice(keys.server_info("host", 0, "id")).replace(":0:", ":pid:"),
    "last_tick": keys.last_tick("q", "{name}"),
    "semaphore": keys.semaphore("{scope}"),
    "scheduler_ticks": keys.scheduler_ticks(),
    "all_servers": keys.all_servers(),
    "signers": keys.signers(),
    "signs": keys.signs(),
    "server": keys.server_info("host", 0, "id").replace(":0:", ":pid:"),
    "task": keys.task("q", "{id}"),
    "unique": keys.unique("q", "{type}", None) + "{md5}",
    "tick": keys.tick("q", "{name}", 0).replace(":0:", ":{due}:"),
    "workers": keys.workers("host", 0, "id").replace(":0:", ":pid:"),
}
"""What keys.py makes, by the name that scripts use for it, in the notation of the headers."""

BINDING = re.compile(r"local (?P<names>\w+(?:, \w+)*) = (?P<values>[^=\n]+)")
REFERENCE = re.compile(r"(?:tonumber\()?(?P<table>KEYS|ARGV)\[(?P<index>\d+)\]\)?")

RIGHTS = re.compile(r"^do -- Redis checks[^\n]*\n(?:  [^\n]*\n)*end\n", re.MULTILINE)


def body_of(text: str) -> list[str]:
    """Return the statements of a script: lines without the header, the question for rights, blanks and comments."""
    lines = RIGHTS.sub("", text.split("]]\n", 1)[1]).splitlines()
    return [line for line in lines if line.strip() and not line.strip().startswith("--")]


def bindings_of(body: list[str]) -> dict[str, str]:
    """Return which name the first statements give to which KEYS[n] or ARGV[n]."""
    bound: dict[str, str] = {}
    for line in body:
        statement = BINDING.fullmatch(line)
        values = [REFERENCE.fullmatch(value) for value in statement["values"].split(", ")] if statement else [None]
        names = statement["names"].split(", ") if statement else []
        if len(names) != len(values) or not all(values):
            break
        bound |= {
            f"{value['table']}[{value['index']}]": name for name, value in zip(names, values, strict=True) if value
        }
    return bound


def problems_of(file_name: str, text: str) -> Iterator[str]:
    """Yield what is wrong with a script."""
    header, body = parse_header(text), body_of(text)
    if header.name != file_name:
        yield f"the header calls it {header.name}"
    yield from (f"line {at} is too long" for at, line in enumerate(text.splitlines(), 1) if len(line) > 120)
    yield from _problems_of_names(header, body)
    yield from _problems_of_keys(header, body)
    yield from _problems_of_facts(header, body)


def _problems_of_names(header: ScriptHeader, body: list[str]) -> Iterator[str]:
    single_args = header.args[:-1] if header.repeated else header.args
    single_keys = header.keys[:-1] if header.repeated_keys else header.keys
    expected = {
        f"{table}[{at}]": name
        for table, names in (("KEYS", single_keys), ("ARGV", single_args))
        for at, name in enumerate(names, 1)
    }
    bound = bindings_of(body)
    if bound != expected:
        yield f"the header says {expected}, the first statements bind {bound}"
    rest = "\n".join(line for line in body if not REFERENCE.search(line) or not BINDING.fullmatch(line))
    if header.repeated_keys:
        rest = rest.replace("ipairs(KEYS)", "", 1)
    # What is left may use KEYS and ARGV only where no name can: to go through the repeated arguments.
    for use in re.findall(r"#?\b(?:KEYS|ARGV)\b(?:\[[^\]]*\])?", rest):
        if not header.repeated or not re.fullmatch(r"#?ARGV|ARGV\[(at|\w+ \+ (at|\d+)|at \+ \w+)\]", use):
            yield f"the body uses {use} instead of a name"
    first = len(header.args)
    if header.repeated and not re.search(rf"(for at = |unpack\(ARGV, ){first}\b", rest):
        yield f"the body does not begin with ARGV[{first}] when it goes through {header.repeated}"
    if not header.repeated and re.search(r"#ARGV|unpack\(ARGV", rest):
        yield "the body goes through arguments that the header does not call repeated"


def _problems_of_keys(header: ScriptHeader, body: list[str]) -> Iterator[str]:
    for name, pattern in zip(header.keys, header.key_patterns, strict=True):
        if pattern != KEY_PATTERNS.get(name, pattern) or pattern not in KEY_PATTERNS.values():
            yield f"keys.py does not make {pattern} for {name}"
    tags = {tag for pattern in header.key_patterns for tag in re.findall(r"\{(q|host:pid:id)\}", pattern)}
    if len(tags) > 1:
        yield f"its keys have the hash tags {sorted(tags)}"
    for literal in re.findall(r"\"(asynq:[^\"]*)\"", "\n".join(body)):
        yield f"the body makes the key {literal!r} by itself"


def _problems_of_facts(header: ScriptHeader, body: list[str]) -> Iterator[str]:
    for missing in {"builds", "returns", "asynq"} - header.facts.keys():
        yield f"the header does not say {missing!r}"
    built = set(re.findall(r"\b(\w+_prefix) \.\.", "\n".join(body)))
    said = set(re.findall(r"\b(\w+_prefix) \.\.", header.facts.get("builds", "")))
    if built != said:
        yield f"the body builds keys from {sorted(built)}, the header says {sorted(said)}"


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_header_says_what_the_body_does(name: str) -> None:
    assert list(problems_of(name, SCRIPTS[name].text)) == []


@pytest.mark.parametrize(
    ("script", "old", "new", "problem"),
    [
        ("enqueue", "--[[ enqueue:", "--[[ enque:", "the header calls it enque"),
        ("enqueue", "local pending = KEYS[1]", "local queue = KEYS[1]", "the first statements bind"),
        ("enqueue", "ARGV[1], ARGV[2], tonumber(ARGV[3])", "ARGV[2], ARGV[1], tonumber(ARGV[3])", "bind"),
        ("enqueue", "local pending = KEYS[1]", "local x = 1\nlocal pending = KEYS[1]", "the first statements bind {}"),
        ("enqueue", '"LPUSH", pending', '"LPUSH", KEYS[1]', "the body uses KEYS[1] instead of a name"),
        ("enqueue", "pending_since)", "ARGV[2])", "the body uses ARGV[2] instead of a name"),
        ("enqueue", "for at = 4, #ARGV", "for at = 3, #ARGV", "does not begin with ARGV[4]"),
        ("requeue", "unpack(ARGV, 5)", "unpack(ARGV, 6)", "does not begin with ARGV[5]"),
        ("extend_leases", "unpack(ARGV, 3)", "unpack(ARGV, 2)", "does not begin with ARGV[3]"),
        ("enqueue", "asynq:{q}:pending", "asynq:{q}:pend", "keys.py does not make asynq:{q}:pend for pending"),
        ("enqueue", "asynq:{q}:pending", "asynq:{q}:active", "keys.py does not make asynq:{q}:active for pending"),
        (
            "forward",
            "KEYS[3] pending      asynq:{q}:pending",
            "KEYS[3] workers   asynq:workers:{host:pid:id}",
            "tags",
        ),
        ("enqueue", "local task = task_prefix .. id", 'local task = "asynq:{q}:t:" .. id', "by itself"),
        ("enqueue", "builds  task_prefix .. id, and", "builds ", "the body builds keys from ['task_prefix']"),
        ("enqueue", "asynq   enqueueCmd", "asynq   enqueueCmd" + 100 * "!", "is too long"),
        ("enqueue", "asynq   enqueueCmd", "        enqueueCmd", "the header does not say 'asynq'"),
        ("dequeue", "if not ids", "if #ARGV > 4 and not ids", "the body uses #ARGV instead of a name"),
    ],
)
def test_a_script_that_does_not_keep_the_rules_is_found(script: str, old: str, new: str, problem: str) -> None:
    text = SCRIPTS[script].text
    assert old in text
    assert any(problem in found for found in problems_of(script, text.replace(old, new)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("local x = 1", "a script begins with"),
        ("--[[ x: does.\nKEYS[2] a b\n]]", r"x: KEYS\[2\] is out of order"),
        ("--[[ x: does.\nKEYS[1] a b\nKEYS[1] c d\n]]", r"x: KEYS\[1\] is out of order"),
        ("--[[ x: does.\nARGV[1] a b\nARGV[3] c d\n]]", r"x: ARGV\[3\] is out of order"),
        ("--[[ x: does.\nKEYS[1] nameless\n]]", r"x: cannot read the header line 'KEYS\[1\] nameless'"),
        ("--[[ x: does.\nremark  nothing\n]]", "x: cannot read the header line 'remark  nothing'"),
    ],
)
def test_a_header_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_header(text)


def test_a_header_gives_names_patterns_and_facts() -> None:
    header = parse_header(
        "--[[ x: does it.\nKEYS[1] pending  asynq:{q}:pending\nARGV[1] now  unix seconds\nARGV[2...] ids  task ids\n"
        "builds  none\nreturns 1 | 0\n  or nothing\n]]\nreturn 1\n"
    )
    assert header == ScriptHeader(
        name="x",
        summary="does it.",
        keys=("pending",),
        key_patterns=("asynq:{q}:pending",),
        args=("now", "ids"),
        repeated="ids",
        repeated_keys=False,
        facts={"builds": "none", "returns": "1 | 0 or nothing"},
    )


def test_scripts_are_read_once_at_the_import() -> None:
    """A process that is out of descriptors, or whose package is being replaced, goes on with what it has read."""
    code = """
import resource
from fastq.broker.scripts import SCRIPTS
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
print(len(SCRIPTS))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(list(LUA.glob("[!_]*.lua"))) + len(TWINS)


def test_an_unknown_script_is_an_error() -> None:
    with pytest.raises(KeyError, match="nosuch"):
        SCRIPTS["nosuch"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_redis_compiles_the_script_and_knows_it_by_our_sha(name: str, db: Redis) -> None:
    script = SCRIPTS[name]
    load: Callable[[str], object] = db.script_load
    assert load(script.text) == script.sha


def test_every_file_in_the_folder_is_a_script_or_shared_by_some() -> None:
    files = {file.name: file.read_text("utf-8") for file in LUA.iterdir()}
    twins = {name: twin_of(name, (LUA / f"{TWINS[name].of or name}.lua").read_text("utf-8")) for name in TWINS}
    includes = Counter(name for text in files.values() for name in re.findall(r"-- include: (\w+)", text))
    in_twins = {name for text in twins.values() for name in re.findall(r"-- include: (\w+)", text)}
    shared = {f"_{name}.lua" for name, scripts in includes.items() if scripts > 1 or name in in_twins}
    shared |= {f"_{name}.lua" for name in in_twins}
    scripts = {f"{name}.lua" for name in SCRIPTS} - {f"{name}_lanes.lua" for name in TWINS}
    assert sorted({*scripts, *shared}) == sorted(files)


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_contains_the_plain_script(name: str) -> None:
    plain, twin = (
        body_of(SCRIPTS[TWINS[name].of or name].text),
        "\n".join(body_of(SCRIPTS[f"{name}_lanes"].text)),
    )
    bound = len(BINDING.findall("\n".join(line for line in plain if re.search(r"(KEYS|ARGV)\[\d", line))))
    assert bound
    assert "\n".join(plain[bound:]) in twin


def test_what_a_script_includes_stands_in_its_place() -> None:
    shared = (LUA / "_count_processed.lua").read_text("utf-8")
    for name in ("done", "complete"):
        assert shared not in (LUA / f"{name}.lua").read_text("utf-8")
        assert SCRIPTS[name].text.count(shared) == 1
    assert [name for name in SCRIPTS if "-- include" in SCRIPTS[name].text] == []


def test_every_script_has_a_caller() -> None:
    callers = [file.read_text("utf-8") for file in PACKAGE.rglob("*.py")]
    named = {
        node.value
        for source in callers
        if "SCRIPTS[" in source or "scripted(" in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named |= {f"{name}_lanes" for name in TWINS}
    assert set(SCRIPTS) <= named


@pytest.mark.skipif(shutil.which("luacheck") is None, reason="luacheck (Debian's lua-check) is not installed")
def test_luacheck_finds_nothing(tmp_path: Path) -> None:
    """What Redis gets is checked: a file with shared lines is no program by itself."""
    for name in SCRIPTS:
        (tmp_path / f"{name}.lua").write_text(SCRIPTS[name].text, "utf-8")
    config = ("--config", str(PACKAGE.parent / ".luacheckrc"))
    done = subprocess.run(["luacheck", *config, "--no-color", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_what_takes_tasks_off_active_gives_back_their_places_in_lanes() -> None:
    takes = {name for name in SCRIPTS if 'redis.call("LREM", active' in SCRIPTS[name].text}
    twins = {f"{name}_lanes" for name in TWINS}
    # Repairs: the places of tasks without a lease are looked for.
    assert {name for name in takes - twins if name not in TWINS} == {"list_leases", "repair_active"}
