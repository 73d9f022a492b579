"""YAML, and `key=value` and `~key` overrides, into frozen, typed configuration; unknown keys are refused.

OmegaConf reads and merges (so `${oc.env:NAME}` and references between keys work), pydantic checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from yaml import YAMLError

from shared.config_schema import Misfit, explain_mistakes
from shared.errors import RequestError
from shared.explain import why_unreadable


class Config(BaseModel):
    """Base of every configuration section: immutable, no unknown keys, finite numbers, defaults are checked too."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, given: object) -> object:
        """pydantic would take `true` for 1."""
        if isinstance(given, Mapping):
            wrong = [name for name, field in cls.model_fields.items() if _truth_for_a_number(given.get(name), field)]
            if wrong:
                kind = PydanticCustomError("truth_for_a_number", "expected something else than true or false")
                raise ValidationError.from_exception_data(
                    cls.__name__, [{"type": kind, "loc": (name,), "input": given[name]} for name in wrong]
                )
        return given

    def refuse_idle(self, names: Sequence[str], why: str) -> None:
        """Raise Misfit for the first of these keys that is not at its default, since it would have no effect.

        Defaults may be given, as every config that a run saves gives them. why: whose key it is, and what is chosen.
        """
        for name in names:
            if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                raise Misfit(name, f"has no effect here: {why}; take it out")


def _truth_for_a_number(value: object, field: FieldInfo) -> bool:
    held = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(one, bool) for one in held) and not _takes_truth(field.annotation)


def _takes_truth(annotation: Any) -> bool:
    return annotation in (bool, Any) or isinstance(annotation, bool) or any(map(_takes_truth, get_args(annotation)))


ConfigT = TypeVar("ConfigT", bound=Config)


def load_config(path: Path | str, model: type[ConfigT], overrides: Sequence[str] = ()) -> ConfigT:
    """Read `path` as YAML, apply `key.sub=value` and `~key.sub` overrides and check against `model`.

    Raises RequestError naming the file, the key and what was expected.
    """
    return checked(merge_yaml(Path(path), overrides), path, model)


def checked(merged: dict[str, Any], path: Path | str, model: type[ConfigT]) -> ConfigT:
    """What `merge_yaml` made of the file at `path`, checked. Raises as `load_config` does."""
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise RequestError("\n".join([f"config {path} is not valid:", *explain_mistakes(error, model)])) from None


def is_override(argument: str) -> bool:
    """Whether a word of a command line changes a config, rather than naming one: `key=value`, or `~key`."""
    return "=" in argument or argument.startswith("~")


def merge_yaml(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """The merged plain dictionary of a YAML file and its overrides, references resolved.

    `~key` takes a key, or a whole section, out of the file; these come first, wherever they stand.
    """
    for item in overrides:
        if not is_override(item) or item.startswith("=") or item == "~":
            raise RequestError(
                f"override {item!r} is not of the form key=value, as in store=/data/store, or '~key', which takes a "
                "key out of the file"
            )
    removed = [item[1:] for item in overrides if item.startswith("~")]
    try:
        base = _pairs(OmegaConf.load(path), path)
        for key in removed:
            _remove(base, key, path)
        given = OmegaConf.from_dotlist([item for item in overrides if not item.startswith("~")])
        merged = OmegaConf.to_container(OmegaConf.merge(base, given), resolve=True)
    except FileNotFoundError:
        raise RequestError(f"config {path} does not exist; shipped examples are under configs/") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"config {path} cannot be read: {why_unreadable(error)}") from None
    except (YAMLError, OmegaConfBaseException, TypeError) as error:  # TypeError: a list laid over a mapping
        raise RequestError(f"config {path} is not valid: {error}") from None
    assert isinstance(merged, dict), "a DictConfig becomes a dict"
    if _holds_nul(merged):
        raise RequestError(f"config {path} holds a NUL character, which no path or name can")
    return {str(key): value for key, value in merged.items()}


def _pairs(base: DictConfig | ListConfig, path: Path) -> DictConfig:
    # OmegaConf takes a text, such as a CSV file, for a key without a value.
    keys = [] if isinstance(base, ListConfig) else [str(key) for key in base]
    text = next((key for key in keys if " " in key or "," in key), None)
    if isinstance(base, ListConfig) or text is not None:
        held = "a list" if text is None else f"text that begins with {text[:40]!r}"
        raise RequestError(f"config {path} holds {held}, expected YAML with `key: value` pairs")
    return base


def _remove(base: DictConfig, key: str, path: Path) -> None:
    *above, name = key.split(".")
    section: Any = base
    for one in above:
        section = section.get(one) if isinstance(section, DictConfig) else None
    if not isinstance(section, DictConfig) or name not in section:
        raise RequestError(f"override '~{key}' takes a key out that config {path} does not have; leave it out")
    del section[name]


def _holds_nul(value: object) -> bool:
    if isinstance(value, dict):
        return any(_holds_nul(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return any(_holds_nul(part) for part in value)
    return isinstance(value, str) and "\0" in value
