"""Write the description of ``/api/v1`` from its table of routes, and the schema of its replies.

The records are those of ``docs/cli.schema.json``, into which the values of queues and tasks are written from their
tables first. ``--check`` only says whether the files are up to date.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from fastq.inspector.fields import QUEUE, TASK, Field, Kind
from fastq.wire.history import OUTCOMES

DOCS = Path(__file__).parent
CLI = DOCS / "cli.schema.json"
SCHEMA = DOCS / "web.schema.json"
OPENAPI = DOCS.parent / "fastq" / "web" / "openapi.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def main() -> int:
    """Write both files, or say which is stale."""
    if not OPENAPI.exists():
        OPENAPI.write_text("{}")
    fresh = {CLI: cli_schema(), OPENAPI: text(openapi()), SCHEMA: text(schema())}
    stale = [path for path, value in fresh.items() if not path.exists() or path.read_text() != value]
    for path in stale:
        if "--check" not in sys.argv:
            path.write_text(fresh[path])
        sys.stdout.write(f"{path.name}: {'stale' if '--check' in sys.argv else 'written'}\n")
    return int("--check" in sys.argv and bool(stale))


def text(value: object) -> str:
    """Return JSON as the files have it."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def schema() -> dict[str, Any]:
    """Return the schema that every reply matches: one of the replies."""
    names = sorted({route.reply for route in routes() if route.reply in REPLIES} | {"error"})
    defs = definitions()
    return {
        "$schema": DIALECT,
        "title": "Replies of fastq web below /api/v1",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in names],
        "$defs": defs,
    }


def openapi() -> dict[str, Any]:
    """Return the description in OpenAPI's form."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes():
        if route.reply:
            paths.setdefault(route.pattern, {})[route.method.lower()] = operation(route)
    schemas = json.loads(json.dumps(definitions()).replace("#/$defs/", "#/components/schemas/"))
    return {
        "openapi": "3.1.0",
        "info": {"title": "fastq web", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def operation(route: Any) -> dict[str, Any]:
    """Describe one route."""
    given = [("path", name) for name in re.findall(r"\{(\w+)\}", route.pattern)]
    given += [("query", name) for name in route.query]
    says = {"application/json": {"schema": {"$ref": f"#/components/schemas/{route.reply}"}}}
    wrong = {"application/json": {"schema": {"$ref": "#/components/schemas/error"}}}
    found: dict[str, Any] = {
        "summary": " ".join((route.endpoint.__doc__ or "").split()),
        "parameters": [
            {"name": name, "in": where, "required": where == "path", "schema": {"type": "string"}}
            for where, name in given
        ],
        "responses": {
            "200": {"description": "done", "content": says if route.reply in REPLIES else {"application/json": {}}},
            "default": {"description": "it was not done", "content": wrong},
        },
    }
    if route.action:
        found["x-action"] = route.action
    if route.reply == "job":
        found["responses"]["202"] = {"description": "begun", "content": says}
    if body := {"acted": "chosen", "lane.limit": "limit"}.get(route.action if route.reply == "lane" else route.reply):
        found["requestBody"] = {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}}}
    return found


def cli_schema() -> str:
    """Return the schema of the commands, with what the tables of queues, tasks and runs have."""
    said = CLI.read_text()
    tables = {
        name: {key: value for field in table for key, value in values_of(field).items()}
        for name, table in (("queue inspect", QUEUE), ("task", TASK))
    }
    for name, values in {**tables, "runs": RUNS}.items():
        start = said.index(f'\n    "{name}": {{')
        end = said.index("\n    }", start)
        said = said[:start] + with_values(said[start:end], values) + said[end:]
    return said


def with_values(block: str, values: dict[str, Any]) -> str:
    """Return the schema of an object with each value on a line of its own, new ones behind those before them."""
    head, required, rest = re.split(r'("required": \[.*\])', block, maxsplit=1)
    after, required = '"properties": {\n', f'"required": {json.dumps([*values])}'
    indent = " " * re.split(r"\S", rest.partition(after)[2])[0].count(" ")
    for key, value in values.items():
        line = f'{indent}"{key}": {json.dumps(value)},\n'
        there = re.search(rf'^{indent}"{key}": (?:{{\n(?:{indent} .*\n)*{indent}}}|.*),?\n', rest, re.M)
        if there is None:
            rest = rest.replace(after, after + line, 1)
        elif value is None:
            line = there[0]
        else:
            line = line if there[0].endswith(",\n") else line.replace("},\n", "}\n")
            rest = rest.replace(there[0], line, 1)
        after = line
    return head + required + rest


RUNS: dict[str, Any] = {
    "start": None,
    **{name: {"$ref": "#/$defs/count"} for name in OUTCOMES},
    **{f"{times}_p{part}_s": None for times in ("run", "wait") for part in (50, 95, 99)},
}
BY_KIND: dict[Kind, Any] = {
    Kind.COUNT: {"$ref": "#/$defs/count"},
    Kind.NUMBER: {"type": "integer"},
    Kind.FLAG: {"type": "boolean"},
    Kind.BYTES: {"type": ["integer", "null"], "minimum": 0},
    Kind.STATE: {"$ref": "#/$defs/state"},
    Kind.HEADERS: {"type": "object", "additionalProperties": {"type": "string"}},
    Kind.SPAN: {"type": "number"},
    Kind.TIME: {"$ref": "#/$defs/time"},
    Kind.TEXT: {"type": "string"},
    Kind.DATA: {"type": "string"},
    Kind.PROGRESS: None,
}
OR_NULL: dict[Kind, Any] = {
    **BY_KIND,
    Kind.COUNT: {"type": ["integer", "null"], "minimum": 0},
    Kind.SPAN: {"type": ["number", "null"]},
    Kind.TIME: {"$ref": "#/$defs/time_or_null"},
    Kind.TEXT: {"$ref": "#/$defs/text_or_null"},
    Kind.DATA: {"$ref": "#/$defs/text_or_null"},
}
OWN: dict[str, Any] = {"archive_full": {"enum": ["trim", "pause", "spill"]}}
"""The schemas by kind, of what may be null, and of single values; one that is None is written by hand."""


def values_of(field: Field) -> dict[str, Any]:
    """Return the schema of each key that a field has in JSON."""
    if field.key is None:
        return {}
    found = OWN.get(field.name, (OR_NULL if field.optional else BY_KIND)[field.kind])
    if found is not None and field.help:
        found = {"description": field.help, **found}
    encoding = {"$ref": f"#/$defs/encoding{'_or_null' if field.optional else ''}"}
    return {field.json_key: found} | ({f"{field.name}_encoding": encoding} if field.kind is Kind.DATA else {})


def routes() -> list[Any]:
    """Return the table of routes."""
    from fastq.web.v1 import V1  # reads the file that this program writes

    return V1


def record(**members: Any) -> dict[str, Any]:
    """Return the schema of an object with exactly these members."""
    return {"type": "object", "additionalProperties": False, "required": list(members), "properties": members}


def ref(name: str) -> dict[str, Any]:
    """Return the schema that has a name."""
    return {"$ref": f"#/$defs/{name}"}


def list_of(each: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": each}


COUNTS = {"type": "object", "additionalProperties": ref("count")}
TEXT = {"type": "string"}
DAY = {"date": {"type": "string", "format": "date"}, "hours": {"type": "number", "exclusiveMinimum": 0}}
REPLIES: dict[str, Any] = {
    "queues": record(queues=list_of(ref("queue_record"))),
    "queue": record(queue=ref("queue_record"), days=list_of(ref("day"))),
    "groups": record(groups=list_of(ref("group")), cursor=ref("text_or_null")),
    "lanes": record(lanes=list_of(ref("lane")), cursor=ref("text_or_null")),
    "tasks": record(tasks=list_of(ref("task")), total=ref("count")),
    "task_with_attempts": record(task=ref("task"), failed_attempts=list_of(ref("failed_attempt"))),
    "search": record(
        state={"enum": ["running", "done", "stopped", "failed"]},
        looked=ref("count"),
        total=ref("count"),
        found=ref("count"),
        errors=COUNTS,
        types=COUNTS,
        tasks=list_of(record(queue=TEXT, state=ref("state"), id=TEXT, type=TEXT, error=ref("text_or_null"))),
    ),
    "servers": record(servers=list_of(ref("server"))),
    "entries": record(entries=list_of(ref("entry"))),
    "events": record(events=list_of(ref("event"))),
    "redis": record(address=TEXT, is_cluster={"type": "boolean"}, info={"type": "object"}),
    "jobs": record(jobs=list_of(ref("job"))),
    "job": record(
        id=TEXT,
        title=TEXT,
        state={"enum": ["running", "done", "stopped", "failed"]},
        done=ref("count"),
        total=ref("count"),
        failures=list_of(TEXT),
        said=ref("text_or_null"),
        by=ref("text_or_null"),
        began_at=ref("time"),
        ended_at=ref("time_or_null"),
        stopped_by=ref("text_or_null"),
    ),
    "acted": None,
    "lane": None,
    "runs_of_queue": None,
}
"""The replies by name; those that are None are records of the commands as they are."""


def definitions() -> dict[str, Any]:
    """Return all schemas by name: those above, and the records of the commands that they refer to."""
    of_cli = json.loads(cli_schema())["$defs"]
    of_cli["queue_record"] = of_cli["queue inspect"]["items"]
    of_cli["day"] = of_cli["queue history"]["items"]["properties"]["days"]["items"]
    of_cli["group"] = of_cli["group ls"]["items"]
    of_cli["server"] = of_cli["server ls"]["items"]
    of_cli["entry"] = of_cli["cron ls"]["items"]
    of_cli["event"] = of_cli["cron history"]["items"]["properties"]["events"]["items"]
    runs = of_cli["run_histories"]["properties"]["queues"]["items"]["properties"]
    of_cli["runs_of_queue"] = record(**runs, days=list_of(record(**DAY, **of_cli["runs"]["properties"])))
    found = {name: reply or of_cli[name] for name, reply in REPLIES.items()}
    found |= {
        "error": record(error=TEXT),
        "chosen": record(ids=list_of(TEXT)),
        "limit": record(limit=ref("text_or_null")),
    }
    while missing := set(re.findall(r"#/\$defs/([^\"]+)", json.dumps(found))) - found.keys():
        found |= {name: of_cli[name] for name in missing}
    return dict(sorted(found.items()))


if __name__ == "__main__":
    sys.exit(main())
