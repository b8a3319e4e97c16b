"""Pages of the admin: the tasks of each queue with their results and errors, and the periodic tasks."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlencode

import django
from django.contrib import admin, messages
from django.contrib.admin import utils
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

from fastq.common.states import TaskState
from fastq.contrib.django.backend import _inspector
from fastq.contrib.django.discovery import fastq_backends
from fastq.contrib.django.models import PeriodicTask, QueuedTask
from fastq.errors import BrokerError, QueueNotFoundError, TaskNotFoundError, TaskStateError
from fastq.info import TaskInfo
from fastq.inspector.fields import TASK, faced
from fastq.inspector.inspectors import Inspector
from fastq.text.human import payload_text

_PAGE_SIZE: Final = 50
_STATES: Final = tuple(state for state in TaskState if state is not TaskState.AGGREGATING)

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


class _RedisAdmin(_ModelAdmin):
    """Pages about objects in Redis, which the inspector reads: a list, and a page of one object."""

    def get_urls(self) -> list[Any]:
        """Return the URLs of both pages, under the admin's names for them."""
        name, view = f"{self.opts.app_label}_{self.opts.model_name}", self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name=f"{name}_changelist"),
            path("<path:object_id>/change/", view(self.change_view), name=f"{name}_change"),
        ]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: tasks are enqueued by code."""
        return False

    def page(self, request: HttpRequest, name: str, read: Callable[[], Mapping[str, Any]]) -> HttpResponse:
        """Show a template with the data that ``read`` returns, or with the error of Redis."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        title = self.opts.verbose_name_plural
        context = {
            **self.admin_site.each_context(request),
            **{"opts": self.opts, "title": str(title).capitalize(), "crumbs_are_a_list": django.VERSION >= (6, 1)},
        }
        try:
            context.update(read())
        except BrokerError as error:
            self.message_user(request, str(error), messages.ERROR)
        except (QueueNotFoundError, TaskNotFoundError, ValueError) as error:
            raise Http404(str(error)) from None
        return TemplateResponse(request, f"admin/fastq/{name}.html", context)


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(_RedisAdmin):
    """The entries of all running schedulers."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """List the entries, the next one due first."""
        return self.page(request, "periodic_tasks", self._entries)

    def _entries(self) -> dict[str, Any]:
        found = [entry for url in _sources().values() for entry in _inspector(url).scheduler_entries()]
        found.sort(key=lambda entry: (entry.next_enqueue_time is None, entry.next_enqueue_time))
        return {"entries": [(entry, payload_text(entry.task_payload)) for entry in found]}


@admin.register(QueuedTask)
class QueuedTaskAdmin(_RedisAdmin):
    """The tasks of a queue that are in one state."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """List tasks, the oldest first, or run or delete those that are chosen."""
        if request.method == "POST":
            return self._act(request)
        return self.page(request, "tasks", lambda: self._tasks(request))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show a task with its result and its failed attempts."""
        return self.page(request, "task", lambda: _task(utils.unquote(object_id)))

    def _tasks(self, request: HttpRequest) -> dict[str, Any]:
        sources = _sources()
        source = request.GET.get("backend", next(iter(sources)))
        inspector = _inspector_of(source)
        state, page = TaskState(request.GET.get("state", "archived")), int(request.GET.get("page", 1))
        if state not in _STATES:
            raise ValueError(f"tasks in groups are not listed: {state!r}")
        queues = sorted(inspector.queues())
        shown = {"sources": list(sources), "source": source, "queues": queues, "states": _STATES, "state": state}
        if not queues:
            return shown
        queue = request.GET.get("queue") or ("default" if "default" in queues else queues[0])
        info = inspector.get_queue_info(queue)
        tasks = inspector.list_tasks(queue, state, page=page, page_size=_PAGE_SIZE)
        return {
            **shown,
            "queue": queue,
            "states": [(each, getattr(info, each)) for each in _STATES],
            "tasks": [_row(source, task) for task in tasks],
            "query": urlencode({"backend": source, "queue": queue, "state": state}),
            "page": page,
            "has_more": getattr(info, state) > page * _PAGE_SIZE,
            "can_run": self.has_change_permission(request),
            "can_delete": self.has_delete_permission(request),
        }

    def _act(self, request: HttpRequest) -> HttpResponse:
        action, chosen = request.POST.get("action", ""), request.POST.getlist("_selected_action")
        if action not in ("run", "delete") or not chosen:
            self.message_user(request, "Choose tasks and an action.", messages.WARNING)
            return HttpResponseRedirect(request.get_full_path())
        is_allowed = self.has_change_permission if action == "run" else self.has_delete_permission
        if not is_allowed(request):
            raise PermissionDenied
        if action == "delete" and "confirmed" not in request.POST:
            return self.page(request, "delete_tasks", lambda: {"chosen": chosen, "back": request.get_full_path()})
        acted = [QueuedTask(key=key) for key in chosen if self._apply(request, action, key)]
        if acted and action == "delete":
            self.log_deletions(request, acted)  # type: ignore[arg-type]  # any iterable will do
        for task in acted if action == "run" else ():
            self.log_change(request, task, "Run again.")
        if acted:
            self.message_user(request, f"{len(acted)} {'deleted' if action == 'delete' else 'will run again'}.")
        return HttpResponseRedirect(request.get_full_path())

    def _apply(self, request: HttpRequest, action: str, key: str) -> bool:
        try:
            inspector, queue, task_id = _found(key)
            (inspector.run_task if action == "run" else inspector.delete_task)(queue, task_id)
        except (BrokerError, QueueNotFoundError, TaskNotFoundError, TaskStateError, ValueError) as error:
            self.message_user(request, str(error), messages.ERROR)
            return False
        return True


def _sources() -> dict[str, str | None]:
    """Map the name of a backend to its Redis URL; of backends with the same URL, only the first is included."""
    found: dict[str | None, str] = {}
    for backend in fastq_backends():
        found.setdefault(backend.redis, backend.alias)
    return {alias: url for url, alias in found.items()} or {"default": None}


def _inspector_of(source: str) -> Inspector:
    sources = _sources()
    if source not in sources:
        raise ValueError(f"TASKS has no backend {source!r} of fastq")
    return _inspector(sources[source])


def _key(source: str, queue: str, task_id: str) -> str:
    return ":".join(quote(part, safe="") for part in (source, queue, task_id))


def _found(key: str) -> tuple[Inspector, str, str]:
    """Return the inspector, the queue and the task id for the key of an admin page."""
    parts = [unquote(part) for part in key.split(":")]
    if len(parts) != 3:
        raise ValueError(f"this is no key of a task: {key!r}")
    return _inspector_of(parts[0]), parts[1], parts[2]


def _row(source: str, task: TaskInfo) -> dict[str, Any]:
    key = _key(source, task.queue, task.id)
    return {
        "key": key,
        "url": reverse("admin:fastq_queuedtask_change", args=(utils.quote(key),)),
        "task": task,
        "payload": payload_text(task.payload),
        "outcome": payload_text(task.result) if task.state is TaskState.COMPLETED else task.last_err,
        "time": task.completed_at or task.next_process_at or task.last_failed_at,
    }


def _task(key: str) -> dict[str, Any]:
    inspector, queue, task_id = _found(key)
    info = inspector.get_task_info(queue, task_id)
    return {
        "title": task_id,
        "task": info,
        "facts": [(title, getattr(info, field.name)) for _, title, field in sorted(faced(TASK, "admin"))],
        "payload": payload_text(info.payload),
        "result": payload_text(info.result),
        "attempts": inspector.get_failed_attempts(queue, task_id),
    }
