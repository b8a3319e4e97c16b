"""The breaking changes between two schemas: payloads that the old schema accepts and the new one refuses. Tasks wait in
queues while workers are replaced, so a worker must accept tasks that were enqueued before it was deployed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

Schema = Mapping[str, Any]
Fault: TypeAlias = "str | tuple[Schema, Schema, str]"
"""A breaking change in words, or two nested schemas that have some, and their path."""

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
        self._counts: dict[tuple[int, int], int] = {}
        self._pairs: dict[tuple[int, int], tuple[Schema, Schema]] = {}

    def breaks(self) -> list[str]:
        """Return the breaking changes, each with its path; those of a nested class only at its first path."""
        # Classes may hold each other, so each is compared with what is known of the others until nothing changes. The
        # counts begin at 0 and only grow, so this ends.
        before = None
        list(self._compare(self._old, self._new, "$"))
        while before != self._counts:
            before = self._counts.copy()
            for pair, (old, new) in list(self._pairs.items()):
                self._counts[pair] = sum(1 for _ in self._simple(old, new, ""))
        return list(self._told(self._compare(self._old, self._new, "$"), set()))

    def _told(self, faults: Iterable[Fault], told: set[tuple[int, int]]) -> Iterator[str]:
        for fault in faults:
            if isinstance(fault, str):
                yield fault
                continue
            old, new, path = fault
            if (id(old), id(new)) not in told:
                told.add((id(old), id(new)))
                yield from self._told(self._simple(old, new, path), told)

    def _compare(self, old: Schema, new: Schema, path: str) -> Iterator[Fault]:
        ours, theirs = _alternatives(old, self._old), _alternatives(new, self._new)
        if not any(_is_anything(each) for each in theirs):
            for each in ours:
                yield from self._best(each, theirs, path)

    def _best(self, old: Schema, news: list[Schema], path: str) -> Iterator[Fault]:
        """Yield the breaking changes of the alternative that has the fewest; none if one accepts all that the old did.
        Alternatives with the old one's tag come first.
        """
        if _is_anything(old):
            yield f"{path} took anything, and is {_words(news)} now"
            return
        alike = [new for new in news if _kind(new) & _kind(old) == _kind(old)]
        if not alike:
            yield f"{path} no longer takes {_words([old])}, but {_words(news)}"
            return
        # A class with the same tag is the one meant, even if another would have fewer changes besides its tag.
        ranks = [((count := self._count(old, new)) > 0, _tags(new) != _tags(old), count) for new in alike]
        if (nearest := min(ranks))[0]:
            yield old, alike[ranks.index(nearest)], path

    def _count(self, old: Schema, new: Schema) -> int:
        """Return how many breaking changes of two schemas of one type each are known; nested schemas count as one."""
        pair = id(old), id(new)
        self._pairs.setdefault(pair, (old, new))
        return self._counts.setdefault(pair, 0)

    def _simple(self, old: Schema, new: Schema, path: str) -> Iterator[Fault]:
        """Compare two schemas of one type each."""
        yield from _choices_gone(old, new, path)
        yield from (f"{path} has {name} {new[name]!r} now" for name in _bounds(old, new))
        if "object" in _kind(old):
            yield from self._objects(old, new, path)
        if "array" in _kind(old):
            yield from self._arrays(old, new, path)

    def _objects(self, old: Schema, new: Schema, path: str) -> Iterator[Fault]:
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

    def _arrays(self, old: Schema, new: Schema, path: str) -> Iterator[Fault]:
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


def _tags(schema: Schema) -> dict[str, Any]:
    """Return the properties that have only one value, as the tag of a class in a union has."""
    choices = {name: _choices(each) for name, each in schema.get("properties", {}).items()}
    return {name: only[0] for name, only in choices.items() if only and len(only) == 1}


def _type_of(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return kinds.get(type(value), "object")


def _is_anything(schema: Schema) -> bool:
    return not {"type", "enum", "const", "properties", "anyOf"} & schema.keys()


def _words(schemas: list[Schema]) -> str:
    return " or ".join(sorted({"/".join(sorted(_kind(each))) or "anything" for each in schemas}))
