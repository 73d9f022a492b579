"""What a configuration key takes, in plain words, and mistakes in a config, from pydantic's own JSON schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from shared.schema import NAME

Schema = Mapping[str, Any]

# The type of pydantic's errors for a name that no dict of implementations has; the key's schema lists those as `enum`.
UNKNOWN_NAME = "unknown_name"


class Misfit(ValueError):
    """For validators of several keys: what is wrong, said of the first of them. key: dotted, below the section."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


_PATTERNS = {NAME: "name (letters, digits, _ . -, not beginning with . or -, at most 100)"}
# A key that stands at more places than this is no hint.
_SO_MANY = 3
_PLAIN = {"boolean": "true or false", "null": "null", "string": "text"}


def type_words(schema: Schema) -> str:
    """One line for what a key takes: `integer from 1 to 64`, `path or null`, `[number, number]`, `{NAME: section}`."""
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return either(dict.fromkeys(type_words(one) for one in schema[several]))
    if "$ref" in schema:
        return "section"
    if "const" in schema or "enum" in schema:
        return either(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return " ".join([kind, *_bounds(schema)])
    if kind == "array":
        return f"[{', '.join(_items(schema))}]"
    if kind == "object":
        named = _named(schema)
        return f"{{NAME: {type_words(named[1])}}}" if named else "section"
    if schema.get("format") == "path":
        return "path"
    if "pattern" in schema:
        return _PATTERNS.get(schema["pattern"], f"text like {schema['pattern']}")
    return _PLAIN.get(str(kind), "any value")


def either(words: Any) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else str(last)


def nearest(word: str, known: Sequence[str]) -> str:
    """`; is ... meant?` where one of the known words is near, else nothing."""
    near = get_close_matches(word, known, 1)
    return f"; is `{near[0]}` meant?" if near else ""


def explain_mistakes(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line for each mistake that pydantic found: the key as it is typed, what is wrong, what was expected."""
    root = model.model_json_schema()
    lines = []
    for item in error.errors(include_url=False):
        location = item["loc"]
        if item["type"] == "extra_forbidden":
            lines.append(_explain_unknown(root, location))
        elif location[-1:] == ("[key]",):
            lines.append(_explain_name(item["input"], *_follow(root, location[:-2])))
        elif item["type"] == "missing" and isinstance(location[-1], int):  # a list that is too short
            lines.append(_explain({**item, "type": "too_short"}, *_follow(root, location[:-1])))
        else:
            lines.append(_explain(item, *_follow(root, location)))
    return list(dict.fromkeys(lines))  # a value that fits no branch of a union is one mistake


def _bounds(schema: Schema) -> list[str]:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    two = (low is not None or above is not None) and (high is not None or below is not None)
    words = []
    if low is not None:
        words.append(f"from {low}" if two else f"of at least {low}")
    if above is not None:
        words.append(f"above {above}")
    if high is not None:
        words.append(f"to {high}" if low is not None else f"and of at most {high}" if two else f"of at most {high}")
    if below is not None:
        words.append(f"and below {below}" if two else f"below {below}")
    return words


def _items(schema: Schema) -> list[str]:
    if "prefixItems" in schema:
        return [type_words(item) for item in schema["prefixItems"]]
    least = schema.get("minItems", 0)
    return [type_words(schema["items"]), f"... (at least {least})" if least else "..."]


def _follow(root: Schema, location: Sequence[int | str]) -> tuple[str, Schema]:
    """The key at `location` as people type it, and the schema there.

    pydantic puts the chosen branch of a union into the location, which nobody types.
    """
    node, typed = _resolved(root, root), []
    for part in location:
        if "discriminator" in node and part in node["discriminator"]["mapping"]:
            node = _resolved(root, {"$ref": node["discriminator"]["mapping"][part]})
            continue
        step = _step(node, part)
        if step is None:
            if "anyOf" in node:  # the name of a branch: all that was wrong in it is one mistake at this key
                break
            typed.append(str(part))
            node = {}
            continue
        typed.append(str(part))
        node = _resolved(root, step)
    return ".".join(typed), node


def _resolved(root: Schema, schema: Schema) -> Schema:
    """`schema` behind its reference, and without the null of an optional section."""
    if "anyOf" in schema:
        branches = [branch for branch in schema["anyOf"] if branch.get("type") != "null"]
        if len(branches) == 1 and ("$ref" in branches[0] or "oneOf" in branches[0]):
            return _resolved(root, branches[0])
    if "$ref" not in schema:
        return schema
    found: Schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    return found


def _step(node: Schema, part: int | str) -> Schema | None:
    if "anyOf" in node:
        return next((step for branch in node["anyOf"] if (step := _step(branch, part)) is not None), None)
    if isinstance(part, int):
        items = node.get("prefixItems", ())
        found: Schema | None = items[part] if part < len(items) else node.get("items")
        return found
    if part in node.get("properties", {}):
        here: Schema = node["properties"][part]
        return here
    named = _named(node)
    return named[1] if named else None


def _named(schema: Schema) -> tuple[Schema, Schema] | None:
    """What the names and the values of a mapping with free names are; None for a section, whose keys are known."""
    for pattern, values in schema.get("patternProperties", {}).items():
        return {"type": "string", "pattern": pattern}, values
    values = schema.get("additionalProperties")
    return ({"type": "string"}, values) if isinstance(values, Mapping) else None


def _explain(item: Mapping[str, Any], key: str, node: Schema) -> str:
    kind, value, place = item["type"], item["input"], f"  {key or '(whole file)'}"
    if kind == "missing":
        return f"{place}: missing, and it has no default; expected {type_words(node)}"
    if kind in ("value_error", "assertion_error"):
        got = "" if isinstance(value, Mapping | BaseModel) else f", got {_shown(value)}"
        within = getattr(item["ctx"]["error"], "key", None)
        if within is not None:
            place = f"  {key}.{within}" if key else f"  {within}"
        return f"{place}: {item['msg'].partition(', ')[2]}{got}"
    if "discriminator" in node and isinstance(value, Mapping):
        return _explain_tag(place, node["discriminator"], value)
    if kind == "finite_number":
        return f"{place}: expected a finite {type_words(node)}, got {_shown(value)}"
    if not node:
        return f"{place}: {item['msg']}, got {_shown(value)}"
    close = nearest(str(value), [str(one) for one in node.get("enum", ())])
    if isinstance(value, str) and any(_lists_texts(one) for one in (node, *node.get("anyOf", ()))):
        close = f"; is `[{value}]` meant?"
    if isinstance(value, bool | int | float) and any(
        one.get("type") == "string" for one in (node, *node.get("anyOf", ()))
    ):
        close = f"; YAML reads it so: put it into quotes, on a command line within others, as in \"{key}='...'\""
    words = type_words(node)
    expected = "a section of `key: value` pairs" if words == "section" else words
    return f"{place}: expected {expected}, got {_shown(value)}{close}"


def _lists_texts(schema: Schema) -> bool:
    return schema.get("type") == "array" and schema.get("items", {}).get("type") == "string"


def _shown(value: object) -> str:
    """A value as YAML has it, where Python has another word."""
    return {"None": "null", "True": "true", "False": "false"}.get(repr(value), repr(value)[:200])


def _explain_name(name: object, section: str, node: Schema) -> str:
    named = _named(node)
    return f"  {section}: {name!r} is no name here" + (f"; expected {type_words(named[0])}" if named else "")


def _explain_unknown(root: Schema, location: Sequence[int | str]) -> str:
    section, node = _follow(root, location[:-1])
    unknown, known = str(location[-1]), sorted(node.get("properties", ()))
    place = f"{section}.{unknown}" if section else unknown
    owners = _owners(root, location)
    if owners:
        return (
            f"  {place}: belongs to {either(f'`{name}`' for name in owners)}, and `{location[-2]}` is chosen here; "
            f"take it out (on the command line: '~{place}') or choose one that has it. Known here: {', '.join(known)}"
        )
    return f"  {place}: unknown key; known here: {', '.join(known)}{_meant(root, unknown, known)}"


def _meant(root: Schema, word: str, known: Sequence[str]) -> str:
    """`; is ... meant?` of a key that is known here, or of one of another section that is nearer, and very near."""
    paths: dict[str, list[str]] = {}
    for path in dict.fromkeys(_paths(root, root, "")):
        paths.setdefault(path.rpartition(".")[2], []).append(path)
    near = get_close_matches(word, list(paths), 1, cutoff=0.8)
    if not near or near[0] in known or len(paths[near[0]]) > _SO_MANY:
        return nearest(word, known)
    return f"; is {either(f'`{path}`' for path in paths[near[0]])} meant?"


def _paths(root: Schema, node: Schema, above: str) -> Iterator[str]:
    """Every key below `node`, dotted, with NAME for names of one's own; those in lists left out."""
    node = _resolved(root, node)
    for branch in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _paths(root, branch, above)
    for name, one in node.get("properties", {}).items():
        yield above + name
        yield from _paths(root, one, f"{above}{name}.")
    named = _named(node)
    if named is not None:
        yield from _paths(root, named[1], f"{above}NAME.")


def _owners(root: Schema, location: Sequence[int | str]) -> list[str]:
    """The branches of the union at `location`, but the chosen one, that have the key at its end."""
    branches = _follow(root, location[:-2])[1].get("discriminator", {}).get("mapping", {})
    if len(location) < 2 or location[-2] not in branches:
        return []
    return [name for name, ref in branches.items() if location[-1] in _resolved(root, {"$ref": ref})["properties"]]


def _explain_tag(place: str, discriminator: Schema, value: Mapping[str, Any]) -> str:
    key, known = discriminator["propertyName"], list(discriminator["mapping"])
    expected = either(f"`{name}`" for name in known)
    if key not in value:
        return f"{place}.{key}: missing, and it has no default; expected {expected}"
    return f"{place}.{key}: expected {expected}, got {_shown(value[key])}{nearest(str(value[key]), known)}"
