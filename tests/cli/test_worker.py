"""The command ``fastq-worker``: what it takes, what it says, with which code it ends."""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from redis import Redis

from fastq import Client
from fastq._version import __version__
from fastq.cli.worker import main
from fastq.server.base.settings import SETTINGS
from tests.e2e.harness import APP, ROOT, Workers, workers_on
from tests.e2e.view import View
from tests.redis_servers import redis_server

NOWHERE = "unix:///nowhere/redis.sock"
TEXT_LINE = re.compile(r"fastq: pid=\d+ \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} (DEBUG|INFO|WARN|ERROR|FATAL): \S.*")


@pytest.fixture
def workers(url: str, tmp_path: Path) -> Iterator[Workers]:
    with workers_on(url, tmp_path) as workers:
        yield workers


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTQ_REDIS_URL", raising=False)


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, words)


# What it takes ----------------------------------------------------------------------------------------------------


def test_help_names_every_setting_and_how_to_use_it() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: fastq-worker [OPTIONS] [APP]\n")
    for name in SETTINGS:
        assert f"--{name.replace('_', '-')}" in result.stdout
    words = " ".join(result.stdout.split())
    for text in (
        "fastq-worker myapp.tasks:app --queues critical=6,default=3,low=1 --concurrency 8",
        "--queues NAME=WEIGHT,... queues and their weights [default: default=1]",
        "how long running handlers may go on after SIGTERM [default: 8]",
        "Each option is also read from FASTQ_<NAME>",
        "Exit codes: 0 done, 1 could not run, 2 misused",
    ):
        assert text in words
    assert max(map(len, result.stdout.splitlines())) <= 110
    assert result.stdout.index("--redis") < result.stdout.index("--health-check")


def test_version_is_said() -> None:
    assert invoke("--version").stdout.split() == ["fastq-worker,", "version", __version__]


MISUSE = [
    ([], "APP is missing: name your App or ServeMux, for example myapp.tasks:app"),
    (["app"], "'app' is not of the form module:attr, for example app:app"),
    (["app:"], "is not of the form module:attr"),
    (["app.py:mux:x y"], "is not of the form module:attr"),
    (["a:b", "c:d"], "unexpected extra argument"),
    (["a:b", "--queus", "x"], "No such option"),
    (["a:b", "--queues", "a=b"], "queues: the weight of queue 'a' is not a whole number: 'b'"),
    (["a:b", "--queues", ","], "names no queue; write for example critical=6,default=3,low=1"),
    (["a:b", "--queues", "a}=1"], "must not contain '}'"),
    (["a:b", "--redis", "http://x"], "scheme 'http' is none of redis, rediss"),
    (["a:b", "--redis", "redis://x:port"], "port"),
    (["a:b", "--concurrency", "0"], "concurrency must be at least 1: 0"),
    (["a:b", "--concurrency", "many"], "concurrency: 'many' is not a whole number"),
    (["a:b", "--shutdown-timeout", "soon"], "'soon' is neither seconds nor a duration such as 1m30s"),
    (["a:b", "--shutdown-timeout", "nan"], "shutdown_timeout must be finite"),
    (["a:b", "--shutdown-timeout", "-1"], "shutdown_timeout must be at least 0"),
    (["a:b", "--max-memory-per-child", "big"], "'big' is not a size such as 512M or 2G"),
    (["a:b", "--start-method", "fork"], "'fork' is not one of 'forkserver', 'spawn'"),
    (["a:b", "--retry-delay", "delay"], "'delay' is not of the form module:attr"),
    (["a:b", "--connect-timeout", "x"], "connect-timeout: 'x' is neither seconds nor a duration"),
    (["a:b", "--connect-timeout", "nan"], "connect-timeout: 'nan' is not a time to wait"),
    (["a:b", "--config", "/nowhere.toml"], "cannot read /nowhere.toml: No such file"),
    (["a:b", "--log-format"], "requires an argument"),
]


@pytest.mark.parametrize(("words", "text"), MISUSE)
def test_misuse_is_said_in_one_line_with_code_2(words: list[str], text: str) -> None:
    result = invoke(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("fastq-worker: ")
    assert line.endswith(" (see fastq-worker --help)")
    assert text in line


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("FASTQ_CONCURRENCY", "two", "FASTQ_CONCURRENCY: concurrency: 'two' is not a whole number"),
        ("FASTQ_STRICT_PRIORITY", "perhaps", "'perhaps' is neither true nor false"),
        ("FASTQ_BURST", "perhaps", "FASTQ_BURST: 'perhaps' is neither true nor false"),
        ("FASTQ_REDIS_URL", "http://x", "scheme 'http'"),
        ("FASTQ_CONFIG", "/nowhere.toml", "cannot read /nowhere.toml"),
    ],
)
def test_a_bad_environment_variable_is_misuse(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str
) -> None:
    monkeypatch.setenv(name, value)
    result = invoke("a:b")
    assert result.exit_code == 2
    assert text in result.stderr


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("concurrency = 'two'", "'two' is not a whole number"),
        ("concurrency = 1.5", "concurrency must be an int"),
        ("concurency = 2", "unknown setting 'concurency'"),
        ("queues = [1]", "queues must map queue names to weights"),
        ("app = 5", "app in the file: 5 is not a string"),
        ("redis = 5", "redis in the file: 5 is not a string"),
        ("burst = 5", "burst in the file: 5 is not a string"),
        ("max_tasks = 0", "max_tasks in the file: 0 is not a number of at least 1"),
        ("exit_when_idle = -1", "exit_when_idle in the file: -1 is not a time to wait"),
        ("burst = true\nexit_when_idle = 5", "burst ends at once where exit-when-idle waits 5 s: give one of them"),
        ("connect_timeout = true", "connect_timeout in the file: True is not a string"),
        ("app = ", "is not TOML"),
    ],
)
def test_a_bad_file_is_misuse(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "fastq.toml"
    file.write_text(text)
    result = invoke("--config", str(file), *(() if text.startswith("app") else ("a:b",)))
    assert result.exit_code == 2
    assert error in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_flag_wins_over_the_environment_that_over_the_file(workers: Workers, url: str) -> None:
    file = workers.directory / "fastq.toml"
    file.write_text(
        f'app = "{APP}"\nredis = "{NOWHERE}"\nburst = true\nconcurrency = 1\nlog_format = "text"\n'
        "[queues]\ncritical = 6\nlow = 1\n"
    )
    assert tomllib.loads(file.read_text())["queues"] == {"critical": 6, "low": 1}
    by_file = workers.start("--config", str(file), app="")
    assert by_file.ended() == 0, by_file.text
    assert "queues critical=6, low=1 (weighted)" in by_file.text
    assert "ready: 1 children" in by_file.text
    env = {"FASTQ_CONCURRENCY": "2", "FASTQ_CONFIG": str(file), "FASTQ_STRICT_PRIORITY": "yes"}
    by_environment = workers.start(app="", env=env)
    by_flag = workers.start("--concurrency", "3", "--queues", "a", "--no-strict-priority", app="", env=env)
    assert (by_environment.ended(), by_flag.ended()) == (0, 0)
    assert "queues critical=6, low=1 (strict)" in by_environment.text
    assert "ready: 2 children" in by_environment.text
    assert "queues a=1 (weighted)" in by_flag.text
    assert "ready: 3 children" in by_flag.text


# The app ----------------------------------------------------------------------------------------------------------


APPS = {
    "bare.py": "from fastq import ServeMux\nempty = ServeMux()\nmux = ServeMux()\nnumber = 5\n"
    "@mux.handler('t')\ndef t(task): ...\n",
    "broken.py": "import json\njson.loads('{')\n",
    "needy.py": "import not_installed_anywhere\n",
    "leaving.py": "import sys\nsys.exit(3)\n",
}


@pytest.fixture
def app_workers(workers: Workers) -> Workers:
    for name, text in APPS.items():
        (workers.directory / name).write_text(text)
    return workers


@pytest.mark.parametrize(
    ("app", "text", "start_method"),
    [
        ("nothere:mux", "'nothere:mux': there is no module 'nothere' in ", "forkserver"),
        ("nothere:mux", "'nothere:mux': there is no module 'nothere' in ", "spawn"),
        ("bare.nothere:mux", "'bare.nothere:mux': there is no module 'bare.nothere' in ", "forkserver"),
        ("bare:mus", "'bare:mus': bare has no 'mus'; did you mean 'mux'?", "forkserver"),
        ("bare:number", "'bare:number' must be a fastq.App or ServeMux, not int", "forkserver"),
        ("bare:empty", "'bare:empty' has no handlers; add some with @empty.handler('type')", "forkserver"),
    ],
)
def test_a_name_that_leads_to_no_app_is_misuse(app_workers: Workers, app: str, text: str, start_method: str) -> None:
    worker = app_workers.start("--start-method", start_method, "--redis", NOWHERE, app=app)
    assert worker.ended() == 2, worker.text
    line = worker.lines[-1]  # before it, that the import takes its time, on a busy machine
    assert line.startswith(f"fastq-worker: {text}")


def test_a_name_that_leads_to_no_hook_is_misuse(app_workers: Workers) -> None:
    absent = app_workers.start("--is-failure", "bare:nothere", app="bare:mux")
    uncallable = app_workers.start("--error-handler", "bare:number", app="bare:mux")
    assert (absent.ended(), uncallable.ended()) == (2, 2)
    # Before it, that the import takes its time, on a busy machine.
    assert absent.lines[-1] == "fastq-worker: 'bare:nothere': bare has no 'nothere'"
    assert uncallable.lines[-1] == "fastq-worker: error_handler='bare:number' is not callable: 5"


def test_a_name_that_leads_to_no_health_check_is_misuse(app_workers: Workers) -> None:
    worker = app_workers.start("--health-check", "bare:number", app="bare:mux")
    assert worker.ended() == 2, worker.text
    said = [line for line in worker.lines if "importing bare:mux" not in line]  # said of a slow import
    assert said == ["fastq-worker: health_check='bare:number' is not callable: 5"]


@pytest.mark.parametrize(
    ("place", "why"), [("bare.py/spilled", "Not a directory"), ("bare.py", "File exists"), ("/proc/1", "")]
)
def test_a_directory_that_cannot_be_written_to_is_misuse_before_anything_starts(
    app_workers: Workers, place: str, why: str
) -> None:
    """The app is not imported, and Redis not asked: neither would do."""
    directory = app_workers.directory / place
    worker = app_workers.start(
        "--archive-full", "spill", "--archive-spill-to", str(directory), "--redis", NOWHERE, app="nothere:mux"
    )
    assert worker.ended() == 2, worker.text
    (line,) = worker.lines
    assert line.startswith(f"fastq-worker: archive_spill_to='{directory}': failed tasks cannot be written there: {why}")


@pytest.mark.parametrize(
    ("flag", "start_method"),
    [
        ("--is-failure", "forkserver"),
        ("--is-failure", "spawn"),
        ("--retry-delay", "forkserver"),
        ("--error-handler", "forkserver"),
        ("--health-check", "forkserver"),
    ],
)
def test_a_hook_that_fails_at_its_import_is_shown_with_its_traceback(
    app_workers: Workers, flag: str, start_method: str
) -> None:
    worker = app_workers.start(flag, "broken:hook", "--start-method", start_method, app="bare:mux")
    assert worker.ended() == 1, worker.text
    assert "FATAL: cannot start the worker processes: " in worker.text
    assert worker.text.count('broken.py", line') == 1
    assert "json.decoder.JSONDecodeError: " in worker.text


@pytest.mark.parametrize(
    ("app", "error", "start_method"),
    [
        ("broken:mux", "json.decoder.JSONDecodeError: ", "forkserver"),
        ("broken:mux", "json.decoder.JSONDecodeError: ", "spawn"),
        ("needy:mux", "ModuleNotFoundError: No module named 'not_installed_anywhere'", "forkserver"),
        ("leaving:mux", "SystemExit: 3", "forkserver"),
    ],
)
def test_an_app_that_fails_at_its_import_is_shown_with_its_traceback(
    app_workers: Workers, app: str, error: str, start_method: str
) -> None:
    worker = app_workers.start("--start-method", start_method, app=app)
    assert worker.ended() == 1, worker.text
    assert "FATAL: cannot start the worker processes: " in worker.text
    module = app.partition(":")[0]
    assert worker.text.count(f'{module}.py", line') == 1  # once, with the app's own line
    assert error in worker.lines[-1] or error in worker.lines[-2]


def test_the_app_is_found_where_the_command_is_started(app_workers: Workers) -> None:
    """An installed command has its own directory on the path, not the current one."""
    program = (sys.executable, "-P", "-c", "from fastq.cli.worker import main; main()")
    worker = app_workers.start("--burst", app="bare:mux", program=program, env={"PYTHONPATH": str(ROOT)})
    assert worker.ended() == 0, worker.text


# Redis ------------------------------------------------------------------------------------------------------------


def test_a_redis_that_does_not_come_is_said_every_few_seconds_until_the_timeout(workers: Workers) -> None:
    worker = workers.start("--redis", NOWHERE, "--connect-timeout", "9")
    assert worker.ended() == 1, worker.text
    *lines, fatal = worker.lines
    warnings = [line for line in lines if "INFO: pool: importing " not in line]  # said where the import takes long
    assert 2 <= len(warnings) <= 4  # of a dozen attempts
    assert "WARN: PING: cannot reach Redis at /nowhere/redis.sock: " in warnings[0]
    assert [line for line in warnings if "WARN: PING: " not in line] == []
    assert "FATAL: " in fatal
    assert "Is it running, and is FASTQ_REDIS_URL or --redis right?" in fatal


def test_a_worker_begins_when_redis_comes(tmp_path: Path) -> None:
    with redis_server() as server, workers_on(server.url, tmp_path) as workers:
        moved = server.directory / "moved.sock"
        socket = Path(server.socket_path)
        socket.rename(moved)
        worker = workers.start("--burst", "--concurrency", "1")
        worker.wait_for("cannot reach Redis")
        moved.rename(socket)
        assert worker.ended() == 0, worker.text
        assert "ready: " in worker.text


def test_a_wrong_password_is_said_at_once(tmp_path: Path) -> None:
    with redis_server(password="right") as server, workers_on(server.url, tmp_path) as workers:
        url = f"unix://:secret-wrong@{server.socket_path}"
        worker = workers.start("--redis", url)
        assert worker.ended() == 1, worker.text
        assert "FATAL: " in worker.text
        assert "password" in worker.text
        assert "secret-wrong" not in worker.text


def test_a_user_who_may_not_ask_for_the_version_may_serve(workers: Workers, view: View, client: Client) -> None:
    client.enqueue("ok")
    view.forbid("info")
    worker = workers.start("--burst")
    assert worker.ended() == 0, worker.text
    assert re.search(r"INFO: Redis at \S+; queues", worker.text)


@pytest.fixture
def view(db: Redis) -> Iterator[View]:
    view = View(db)
    yield view
    view.allow_all()


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


# The log ----------------------------------------------------------------------------------------------------------


def test_the_banner_says_what_is_served_and_by_whom(workers: Workers, db: Redis) -> None:
    worker = workers.start(
        "--burst", "--queues", "critical=6,default=3,low=1", "--concurrency", "2", "--start-method", "spawn"
    )
    assert worker.ended() == 0, worker.text
    info = db.info("server")
    assert isinstance(info, dict)
    python = ".".join(map(str, sys.version_info[:3]))
    lines = [line for line in worker.lines if "pool: importing" not in line]  # said of a slow import
    said = [line.partition("INFO: ")[2] for line in lines]
    assert said[0] == f"fastq {__version__} on Python {python} serves {APP}"
    path = workers.url.removeprefix("unix://")
    assert said[1] == f"Redis {info['redis_version']} at {path}; queues critical=6, default=3, low=1 (weighted)"
    assert said[2] == "ready: 2 children (spawn), 200 tasks at once"
    assert said[3] == "stopped; 0 tasks done; 0 in flight"


def test_every_line_of_the_text_log_has_its_form(workers: Workers, client: Client) -> None:
    client.enqueue("skip")
    client.enqueue("nothing")
    worker = workers.start("--burst", "--log-level", "debug")
    assert worker.ended() == 0, worker.text
    for line in worker.lines:
        assert TEXT_LINE.fullmatch(line) or line.startswith("    "), line  # a traceback stands indented
    assert "    Traceback (most recent call last):" in worker.lines


def test_every_line_of_the_json_log_is_an_object(workers: Workers, client: Client) -> None:
    client.enqueue("skip")
    worker = workers.start("--burst", "--log-format", "json")
    assert worker.ended() == 0, worker.text
    lines = [json.loads(line) for line in worker.lines]
    assert [line["message"] for line in lines][-1] == "stopped; 0 tasks done, 1 skip retry; 0 in flight"
    assert {line["level"] for line in lines} == {"info", "error"}
    (archived,) = (line for line in lines if line["level"] == "error")
    assert (archived["task_type"], archived["outcome"], archived["attempt"]) == ("skip", "archived", 1)
    assert archived["traceback"].startswith("Traceback (most recent call last):\n")
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"]) for line in lines)


def test_a_quiet_log_is_empty(workers: Workers, client: Client) -> None:
    client.enqueue("nothing")
    worker = workers.start("--burst", "--log-level", "error")
    assert worker.ended() == 0, worker.text
    assert worker.text == ""


def test_what_was_done_is_said_now_and_then(workers: Workers, client: Client) -> None:
    worker = workers.start_timed({"report_interval_s": 0.2}, concurrency=1).is_ready()
    worker.wait_for("0 tasks done; 0 in flight")
    client.enqueue_many([])
    for type in ("ok", "ok", "skip"):
        client.enqueue(type)
    worker.wait_for("INFO: 2 tasks done, 1 skip retry; 0 in flight")
