"""The breaking changes between two schemas: payloads that the old schema accepts and the new one refuses. Tasks wait in
queues while workers are replaced, so a worker must accept tasks that were enqueued before it was deployed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_AT_LEAST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_AT_MOST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_SAME: Final = ("format", "contentEncoding", "pattern", "multipleOf")


def breaking_changes(old: Schema, new: Schema) -> list[str]:
    """Return a line for each breaking change; both schemas are as ``schema_of`` returns them."""
    served = {name: name for name in new["tasks"]}
    for name, task in new["tasks"].items():
        served.update(dict.fromkeys(task["aliases"], name))
    found: list[str] = []
    for name, task in old["tasks"].items():
        found += [f"{each}: no task has this name any more" for each in (name, *task["aliases"]) if each not in served]
        if name in served:
            theirs = new["tasks"][served[name]]["payload"]
            found += [f"{name}: {text}" for text in _Comparison(task["payload"], theirs).breaks()]
    return found


class _Comparison:
    """The comparison of two schemas of a payload."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new
        self._seen: set[tuple[int, int]] = set()

    def breaks(self) -> list[str]:
        """Return the breaking changes, each with its path."""
        return list(self._compare(self._old, self._new, "$"))

    def _compare(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        ours, theirs = _alternatives(old, self._old), _alternatives(new, self._new)
        if not any(_is_anything(each) for each in theirs):
            for each in ours:
                yield from self._best(each, theirs, path)

    def _best(self, old: Schema, news: list[Schema], path: str) -> Iterator[str]:
        """Yield the breaking changes of the best alternative; nothing if an alternative accepts all that the old schema
        did.
        """
        if _is_anything(old):
            yield f"{path} took anything, and is {_words(news)} now"
            return
        alike = [new for new in news if _kind(new) & _kind(old) == _kind(old)]
        if not alike:
            yield f"{path} no longer takes {_words([old])}, but {_words(news)}"
            return
        faults = [list(self._simple(old, new, path)) for new in alike]
        yield from min(faults, key=len)

    def _simple(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        """Compare two schemas of one type each; a recursive class is compared only once."""
        if (id(old), id(new)) in self._seen:
            return
        self._seen.add((id(old), id(new)))
        yield from _choices_gone(old, new, path)
        yield from (f"{path} has {name} {new[name]!r} now" for name in _bounds(old, new))
        if "object" in _kind(old):
            yield from self._objects(old, new, path)
        if "array" in _kind(old):
            yield from self._arrays(old, new, path)

    def _objects(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        ours, theirs = old.get("properties", {}), new.get("properties", {})
        for name in new.get("required", ()):
            if name not in old.get("required", ()):
                yield f"{path}.{name} is required now"
        rest = new.get("additionalProperties", True)
        for name, schema in ours.items():
            if name in theirs:
                yield from self._compare(schema, theirs[name], f"{path}.{name}")
            elif rest is False:
                yield f"{path}.{name} is refused now"
        if isinstance(rest, Mapping):
            before = old.get("additionalProperties", {})
            yield from self._compare(before if isinstance(before, Mapping) else {}, rest, f"{path}.*")

    def _arrays(self, old: Schema, new: Schema, path: str) -> Iterator[str]:
        ours, theirs = old.get("prefixItems", ()), new.get("prefixItems", ())
        for place, (mine, its) in enumerate(zip(ours, theirs, strict=False)):
            yield from self._compare(mine, its, f"{path}[{place}]")
        each, its_each = old.get("items"), new.get("items")
        if isinstance(its_each, Mapping):
            yield from self._compare(each if isinstance(each, Mapping) else {}, its_each, f"{path}[]")


def _choices_gone(old: Schema, new: Schema, path: str) -> Iterator[str]:
    choices, given = _choices(new), _choices(old)
    if choices is not None and given is None:
        yield f"{path} is one of {choices} now"
    elif gone := [choice for choice in given or () if choices is not None and choice not in choices]:
        yield f"{path} no longer takes {', '.join(map(repr, gone))}"


def _bounds(old: Schema, new: Schema) -> Iterator[str]:
    """Yield the names of the bounds that are tighter in the new schema."""
    yield from (name for name in _SAME if name in new and new[name] != old.get(name))
    yield from (name for name in _AT_LEAST if name in new and new[name] > old.get(name, float("-inf")))
    yield from (name for name in _AT_MOST if name in new and new[name] < old.get(name, float("inf")))


def _alternatives(schema: Schema, root: Schema) -> list[Schema]:
    """Return the alternatives of a schema, of which one must match, with references resolved."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return [inner for each in schema["anyOf"] for inner in _alternatives(each, root)]
    return [schema]


def _kind(schema: Schema) -> frozenset[str]:
    """Return the JSON types of a schema; an integer counts as a number, too."""
    if (choices := _choices(schema)) is not None:
        kinds = {_type_of(choice) for choice in choices}
    else:
        given = schema.get("type", ())
        kinds = {given} if isinstance(given, str) else set(given)
    # A number may be an integer, so "number" includes "integer".
    return frozenset(kinds | {"integer"} if "number" in kinds else kinds)


def _choices(schema: Schema) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _type_of(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return kinds.get(type(value), "object")


def _is_anything(schema: Schema) -> bool:
    return not {"type", "enum", "const", "properties", "anyOf"} & schema.keys()


def _words(schemas: list[Schema]) -> str:
    return " or ".join(sorted({"/".join(sorted(_kind(each))) or "anything" for each in schemas}))
