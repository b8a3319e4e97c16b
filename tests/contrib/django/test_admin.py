"""The admin's pages about tasks and periodic tasks, on a real Redis."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import StringIO

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import transaction
from django.test import Client as Browser
from redis import Redis

from fastq import Client, Inspector, Task, TaskState
from fastq.contrib.django.backend import KNOWN_TASKS
from fastq.contrib.django.handlers import handler_of
from fastq.mux import ServeMux
from fastq.testing import drain
from fastq.wire.messages import SchedulerEntry
from tests.cli.dash.scene import publish_entries
from tests.contrib.django import jobs

TASKS = "/admin/fastq/queuedtask/"
PERIODIC = "/admin/fastq/periodictask/"

pytestmark = pytest.mark.usefixtures("rolled_back")


@pytest.fixture
def rolled_back(tasks_are: Callable[..., None]) -> Iterator[None]:
    tasks_are(enqueue_on_commit=False)
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def browser(*permissions: str) -> Browser:
    """Return the browser of a member of staff with some permissions."""
    user = User.objects.create(username="ann", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    found = Browser()
    found.force_login(user)
    return found


def seen(browser: Browser, path: str, status: int = 200) -> str:
    answer = browser.get(path)
    assert answer.status_code == status, answer.content.decode()
    return answer.content.decode()


@pytest.fixture
def ended(url: str, rolled_back: None) -> list[str]:
    """Return the keys of a task that has failed and one that is completed."""
    mux: ServeMux = ServeMux()
    for path, known in KNOWN_TASKS.items():
        mux.handle(f"{path}\0", handler_of(known))
    keys = [f"default:{task.enqueue(*args).id}" for task, args in ((jobs.fail, ["<no> stock"]), (jobs.add, [40, 2]))]
    drain(mux, url)
    return keys


def test_the_index_leads_to_both_pages() -> None:
    page = seen(browser("view_queuedtask", "view_periodictask"), "/admin/")
    assert f'href="{TASKS}"' in page
    assert f'href="{PERIODIC}"' in page


def test_periodic_tasks_are_listed_the_next_one_first(db: Redis) -> None:
    times = [datetime(2040, 1, day, tzinfo=UTC) for day in (2, 1)]
    publish_entries(
        db,
        *(SchedulerEntry(f"{at}", "@daily", f"job-{at.day}", b'{"a":1}', ('Queue("low")',), at, None) for at in times),
    )
    page = seen(browser("view_periodictask"), PERIODIC)
    assert page.index("job-1") < page.index("job-2")
    assert "@daily" in page
    assert "Queue(&quot;low&quot;)" in page


@pytest.mark.usefixtures("ended")
def test_tasks_are_listed_with_their_results_and_errors() -> None:
    one = browser("view_queuedtask")
    failed = seen(one, TASKS)
    assert "ValueError: &lt;no&gt; stock" in failed
    assert "tests.contrib.django.jobs.fail" in failed
    assert "archived (1)" in failed
    assert "completed (1)" in failed
    assert 'value="run"' not in failed
    completed = seen(one, f"{TASKS}?queue=default&state=completed")
    assert "&quot;value&quot;:42" in completed
    assert "There are no tasks here" in seen(one, f"{TASKS}?queue=default&state=retry")


def test_a_task_is_shown_with_its_attempts_or_its_result(ended: list[str]) -> None:
    one = browser("view_queuedtask")
    failed = seen(one, f"{TASKS}{ended[0].replace(':', '_3A')}/change/")
    assert "ValueError: &lt;no&gt; stock" in failed
    assert "&quot;value&quot;:42" in seen(one, f"{TASKS}{ended[1].replace(':', '_3A')}/change/")


def test_the_way_to_a_page_looks_as_on_the_admin_s_own_pages(ended: list[str]) -> None:
    one = browser("view_queuedtask", "delete_queuedtask", "view_periodictask", "view_user")
    (tag,) = re.findall(r'<(\w+) class="breadcrumbs"', seen(one, "/admin/auth/user/"))
    pages = [seen(one, path) for path in (TASKS, PERIODIC, f"{TASKS}{ended[0].replace(':', '_3A')}/change/")]
    pages.append(one.post(TASKS, {"action": "delete", "_selected_action": ended}).content.decode())
    for page, last in zip(pages, ("Tasks", "Periodic tasks", ended[0].rpartition(":")[2], "Delete"), strict=True):
        (way,) = re.findall(rf'<{tag} class="breadcrumbs">(.*?)</{tag}>', page, re.DOTALL)
        assert re.sub(r"<.*?>", "", way).split()[0] == "Home"
        assert re.sub(r"<.*?>", "", way).strip().endswith(last)


def test_tasks_are_run_again_and_deleted_and_the_log_says_by_whom(url: str, ended: list[str]) -> None:
    one = browser("view_queuedtask", "change_queuedtask", "delete_queuedtask")
    failed, done = ended
    with Inspector(url) as inspector:
        one.post(TASKS, {"action": "run", "_selected_action": [failed]})
        assert inspector.get_task_info("default", failed.rpartition(":")[2]).state is TaskState.PENDING
        page = one.post(TASKS, {"action": "delete", "_selected_action": [done]}).content.decode()
        assert done in page
        assert inspector.count_tasks("default", "completed") == 1
        one.post(TASKS, {"action": "delete", "_selected_action": [done], "confirmed": "yes"})
        assert inspector.count_tasks("default", "completed") == 0
    log = LogEntry.objects.order_by("pk").values_list("action_flag", "object_id", "user__username")
    assert list(log) == [(CHANGE, failed, "ann"), (DELETION, done, "ann")]
    assert "1 deleted" in seen(one, TASKS)
    assert f"{TASKS}{failed.replace(':', '_3A')}/change/" in seen(one, "/admin/")  # recent actions


def test_what_cannot_be_done_is_told() -> None:
    one = browser("change_queuedtask", "delete_queuedtask")
    result = jobs.add.enqueue(1)
    wrong = ["default:default:no-such-task", f"default:{result.id}", "no-key"]
    page = one.post(TASKS, {"action": "run", "_selected_action": wrong}, follow=True).content.decode()
    assert "no-such-task" in page
    assert "pending" in page
    assert "no-key" in page
    assert "will run again" not in page
    assert "Choose tasks" in one.post(TASKS, {"action": "run"}, follow=True).content.decode()


@pytest.mark.parametrize(
    ("permissions", "action"), [((), ""), (("view_queuedtask",), "run"), (("change_queuedtask",), "delete")]
)
def test_nothing_is_done_without_permission(
    url: str, ended: list[str], permissions: tuple[str, ...], action: str
) -> None:
    one = browser(*permissions)
    given = {"action": action, "_selected_action": ended, "confirmed": "yes"}
    assert (one.post(TASKS, given) if action else one.get(TASKS)).status_code == 403
    with Inspector(url) as inspector:
        assert (inspector.count_tasks("default", "archived"), inspector.count_tasks("default", "completed")) == (1, 1)


@pytest.mark.parametrize(
    "query", ["queue=nowhere", "state=unknown", "page=0", "page=x", "state=aggregating", "backend=other"]
)
@pytest.mark.usefixtures("ended")
def test_wrong_queries_are_not_found(query: str) -> None:
    seen(browser("view_queuedtask"), f"{TASKS}?{query}", 404)


def test_names_with_all_characters_are_found(url: str) -> None:
    with Client(url) as client:
        client.enqueue("t", queue="a:b/c&d", task_id="1:2/3%_é")
    one = browser("view_queuedtask")
    page = seen(one, f"{TASKS}?queue=a%3Ab%2Fc%26d&state=pending")
    link = page.partition(f'href="{TASKS}')[2].partition(f'href="{TASKS}')[2].partition('"')[0]
    assert "1:2/3%_é" in seen(one, TASKS + link)


def test_a_long_list_has_pages(url: str) -> None:
    with Client(url) as client:
        client.enqueue_many(Task("t", {"n": n}) for n in range(51))
    one = browser("view_queuedtask")
    assert "page=2" in seen(one, f"{TASKS}?state=pending")
    second = seen(one, f"{TASKS}?state=pending&page=2")
    assert "&quot;n&quot;:50" in second
    assert "page=1" in second
    assert "page=3" not in second


def test_an_empty_redis_and_one_that_is_away_are_told(tasks_are: Callable[..., None]) -> None:
    one = browser("view_queuedtask", "view_periodictask")
    assert "There are no tasks here" in seen(one, TASKS)
    tasks_are(redis="redis://127.0.0.1:1/0")
    assert "127.0.0.1:1" in seen(one, TASKS)
    assert "127.0.0.1:1" in seen(one, PERIODIC)


def test_the_models_have_migrations_and_no_rows() -> None:
    call_command("makemigrations", "fastq", check=True, dry_run=True, verbosity=0)
    for flags in ({}, {"use_base_manager": True}):
        output = StringIO()
        call_command("dumpdata", "fastq", stdout=output, **flags)
        assert output.getvalue().strip() == "[]"
