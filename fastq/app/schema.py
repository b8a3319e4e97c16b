"""The JSON Schema of an app's tasks, which can be stored, compared, and translated to Go."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fastq.app.app import App
from fastq.app.function import TaskFunction

FORMAT: Final = 1
_REF: Final = "#/$defs/{model}"


def schema_of(app: App) -> dict[str, Any]:
    """Return the schema of all tasks, by name: their aliases, and the schema of their payload."""
    tasks = {name: _task(task) for name, task in sorted(app.tasks.items())}
    return {"format": FORMAT, "tasks": tasks}


def _task(task: TaskFunction[..., Any]) -> dict[str, Any]:
    (ref,), definitions = msgspec.json.schema_components([task.payload.struct], schema_hook=_model_schema)
    name = ref["$ref"].rpartition("/")[2]
    payload = {**definitions.pop(name), "title": task.type}
    hoisted = {**definitions, **_hoisted(payload), **_hoisted(definitions)}
    return {"aliases": sorted(task.aliases), "payload": {**payload, **({"$defs": hoisted} if hoisted else {})}}


def _model_schema(kind: Any) -> dict[str, Any]:
    """Return the schema of a pydantic model; msgspec asks for no other types."""
    schema: dict[str, Any] = kind.model_json_schema(ref_template=_REF)
    return schema


def _hoisted(schema: Any) -> Mapping[str, Any]:
    """Remove the definitions of models from the parts that use them, and return them for the top level."""
    found: dict[str, Any] = {}
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for part in list(parts):
        found.update(_hoisted(part))
        if isinstance(part, dict):
            found.update(part.pop("$defs", {}))
    return found
