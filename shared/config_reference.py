"""The reference of a configuration, from the classes that check it: keys, types, defaults, and what docstrings say.

A docstring of a section says of each key what it means, as in

    lr: the peak rate. clip, freeze: two keys with one meaning.

Text before the first key of a paragraph, and paragraphs without any, describe the section. A key of a base class keeps
the meaning that it has there; what the class itself says of it is added.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from shared.config import Config
from shared.config_schema import Schema, nearest, type_words
from shared.errors import RequestError

_OWN = ("NAME", "N")


@dataclass(frozen=True)
class Key:
    """type, default: words for people; default None says that the key must be given. meaning: text, maybe empty."""

    name: str
    type: str
    default: str | None
    meaning: str


@dataclass(frozen=True)
class Section:
    """One class at one place.

    steps: from the top to it; NAME and N stand for names and numbers of the user's own, `=word` for the kind that
    chooses this class among several. tag: the key that holds that kind and its value, or None. given: the instance
    that stands there by default, if it is one of this class.
    """

    steps: tuple[str, ...]
    model: type[BaseModel]
    tag: tuple[str, str] | None = None
    given: BaseModel | None = None

    @property
    def title(self) -> str:
        """The path as it is typed, and the kind for which it holds."""
        path = ".".join(step for step in self.steps if not step.startswith("="))
        kinds = [step[1:] for step in self.steps if step.startswith("=")]
        if self.tag:
            return f"{path}, {self.tag[0]}: {self.tag[1]}"
        return f"{path} of {kinds[-1]}" if kinds else path or "top level"

    def entries(self) -> list[Key]:
        """The keys in the order of the class."""
        schema = self.model.model_json_schema()
        schema = schema.get("$defs", {}).get(self.model.__name__, schema)
        return [self._key(name, schema["properties"][name]) for name in self.model.model_fields]

    def notes(self) -> list[str]:
        """What the docstring says beside the keys, a paragraph each."""
        return _read(self.model)[1]

    def _key(self, name: str, schema: Schema) -> Key:
        field = self.model.model_fields[name]
        own = getattr(self.given, name) if self.given else field.get_default(call_default_factory=True)
        default: str | None
        if own is PydanticUndefined or (self.tag and name == self.tag[0]):
            default = None
        elif field.default_factory is not None and not isinstance(own, BaseModel | dict):
            default = "as this machine has them"
        else:
            default = _shown(own)
        return Key(name, type_words(schema), default, meaning_of(self.model, name))


def sections(model: type[BaseModel]) -> list[Section]:
    """Every section of a configuration, outermost first, each at every place where it stands."""
    return list(_below(Section((), model)))


def chosen(model: type[BaseModel], wanted: str) -> list[tuple[Section, list[str]]]:
    """What `keys` shows: sections and the names of their keys, all for an empty `wanted`, else those below that path.

    Names of one's own may be left out (`sets.clean` for `sets.NAME.clean`), and a kind may stand for one
    (`streams.timm`). Raises RequestError for a path that names nothing.
    """
    everything = sections(model)
    parts = wanted.split(".") if wanted else []
    for own_names in (False, True):  # a word is a key or a kind where it can be, else somebody's own name
        below = [section for section in everything if _rest(section.steps, parts, own_names) is not None]
        if below:
            return [(section, list(section.model.model_fields)) for section in _once(below)]
        holders = [s for s in _at(everything, parts[:-1], own_names) if parts[-1] in s.model.model_fields]
        if holders:
            return [(section, [parts[-1]]) for section in holders]
    raise RequestError(_unknown(everything, parts))


def names_of_ones_own(model: type[BaseModel], wanted: str) -> list[str]:
    """Which words of a path that `chosen` knows are neither keys nor kinds, with the nearest of these.

    Any word can be somebody's name for a stream or a set, a mistyped kind as well.
    """
    everything = sections(model)
    words = {step.removeprefix("=") for section in everything for step in section.steps} - set(_OWN)
    words |= {name for section in everything for name in section.model.model_fields}
    return [
        f"{part!r} is taken for a name of your own{nearest(part, sorted(words))}"
        for part in wanted.split(".")
        if part and part not in words
    ]


def _unknown(everything: list[Section], parts: list[str]) -> str:
    """The longest part of the path that is one, and what could follow."""
    depth = max(length for length in range(len(parts)) if _at(everything, parts[:length], True))
    there = _at(everything, parts[:depth], False) or _at(everything, parts[:depth], True)
    known = sorted({name for section in there for name in section.model.model_fields})
    place, word = ".".join(parts[:depth]) or "the top level", parts[depth]
    if word in known:
        return f"{'.'.join(parts)}: {word!r} holds no further keys; ask for {'.'.join(parts[: depth + 1])}"
    return (
        f"{'.'.join(parts)}: {word!r} is no key or section of {place}; "
        f"known there: {', '.join(known)}{nearest(word, known)}"
    )


def meaning_of(model: type[BaseModel], name: str) -> str:
    """What the docstrings say of a key; empty where they say nothing."""
    found = [meanings[name] for cls in reversed(model.__mro__) if name in (meanings := _read(cls)[0])]
    return " Here: ".join(dict.fromkeys(found))


def _below(section: Section) -> Iterator[Section]:
    yield section
    for name, field in section.model.model_fields.items():
        places, models = _inside(field.annotation)
        default = getattr(section.given, name) if section.given else field.get_default(call_default_factory=True)
        for model in models:
            tag = _tag(model) if len(models) > 1 else None
            steps = (*section.steps, name, *places, *(["=" + tag[1]] if tag else []))
            yield from _below(Section(steps, model, tag, default if type(default) is model else None))


def _inside(annotation: Any) -> tuple[list[str], list[type[BaseModel]]]:
    """The names that stand between a key and its sections, and the classes that may stand there."""
    if inspect.isclass(annotation) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        return [], [annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _inside(parts[0])
    if origin in (Union, types.UnionType):
        return [], [model for part in parts for model in _inside(part)[1]]
    if origin in (dict, tuple, list):
        places, models = _inside(parts[-1] if origin is dict else parts[0])
        return ["NAME" if origin is dict else "N", *places], models
    return [], []


def _tag(model: type[BaseModel]) -> tuple[str, str] | None:
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1:
            return name, str(get_args(field.annotation)[0])
    return None


def _once(found: list[Section]) -> list[Section]:
    """Each class where it first stands, and without the defaults of one place if it stands at several."""
    places: dict[type[BaseModel], list[Section]] = {}
    for section in found:
        places.setdefault(section.model, []).append(section)
    return [same[0] if len(same) == 1 else _anywhere(same[0]) for same in places.values()]


def _anywhere(section: Section) -> Section:
    own = section.steps[-1:] if section.tag else ()
    outer = section.steps[: len(section.steps) - len(own)]
    return Section((*(step for step in outer if not step.startswith("=")), *own), section.model, section.tag)


def _at(everything: list[Section], wanted: list[str], own_names: bool) -> list[Section]:
    """The sections that the path names, not those below them."""
    return [section for section in everything if _rest(section.steps, wanted, own_names) == ()]


def _rest(steps: tuple[str, ...], wanted: list[str], own_names: bool) -> tuple[str, ...] | None:
    """The keys that follow in `steps` when `wanted` is used up; None where it is another path.

    Names and kinds may be left out; with `own_names`, any word may be a name.
    """
    if not wanted:
        return tuple(step for step in steps if not _may_be_left_out(step))
    if not steps:
        return None
    found = None
    if steps[0].removeprefix("=") == wanted[0] or (own_names and _may_be_called(steps[0], wanted[0])):
        found = _rest(steps[1:], wanted[1:], own_names)
    if found is None and _may_be_left_out(steps[0]):
        found = _rest(steps[1:], wanted, own_names)
    return found


def _may_be_called(step: str, word: str) -> bool:
    return step == "NAME" or (step == "N" and word.isdigit())


def _may_be_left_out(step: str) -> bool:
    return step in _OWN or step.startswith("=")


@cache
def _read(model: type[Any]) -> tuple[dict[str, str], list[str]]:
    """(meanings of keys, other paragraphs) of a class's own docstring."""
    text = inspect.cleandoc(model.__dict__.get("__doc__") or "") if issubclass(model, BaseModel) else ""
    if not text or model in (BaseModel, Config):
        return {}, []
    one = "|".join(sorted(map(re.escape, model.model_fields), key=len, reverse=True))
    key = re.compile(rf"(?:^|(?<=\s))((?:{one})(?:(?:, | or | and )(?:{one}))*):\s")
    meanings: dict[str, str] = {}
    notes = []
    for paragraph in text.split("\n\n"):
        before, *found = key.split(" ".join(paragraph.split()))
        if before.strip():
            notes.append(before.strip())
        for names, meaning in zip(found[::2], found[1::2], strict=True):
            for name in re.split(", | or | and ", names):
                meanings[name] = f"{meanings.get(name, '')} {meaning}".strip()
    return meanings, notes


def _shown(value: object) -> str:
    """A default as YAML has it on one line; of a section what differs from its class."""
    if isinstance(value, BaseModel):
        different = {
            name: getattr(value, name)
            for name, field in type(value).model_fields.items()
            if getattr(value, name) != field.get_default(call_default_factory=True) or _is_tag(value, name)
        }
        return _shown(different) if different else "that of its keys"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(one)}" for key, one in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_shown(one) for one in value) + "]"
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    return str(value) if isinstance(value, int | float | str | Path) else repr(value)


def _is_tag(value: BaseModel, name: str) -> bool:
    tag = _tag(type(value))
    return tag is not None and tag[0] == name
