"""YAML and `key=value` overrides into frozen, typed configuration; unknown keys are refused.

OmegaConf reads and merges (so `${oc.env:NAME}` and references between keys work), pydantic checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, ValidationError
from yaml import YAMLError

from shared.config_schema import explain_mistakes
from shared.errors import RequestError
from shared.explain import why_unreadable


class Config(BaseModel):
    """Base of every configuration section: immutable, no unknown keys, finite numbers, defaults are checked too."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


ConfigT = TypeVar("ConfigT", bound=Config)


def load_config(path: Path | str, model: type[ConfigT], overrides: Sequence[str] = ()) -> ConfigT:
    """Read `path` as YAML, apply `key.sub=value` overrides and check against `model`.

    Raises RequestError naming the file, the key and what was expected.
    """
    merged = merge_yaml(Path(path), overrides)
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        raise RequestError("\n".join([f"config {path} is not valid:", *explain_mistakes(error, model)])) from None


def merge_yaml(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """The merged plain dictionary of a YAML file and its overrides, references resolved."""
    for item in overrides:
        if "=" not in item or item.startswith("="):
            raise RequestError(f"override {item!r} is not of the form key=value, as in store=/data/store")
    try:
        base = OmegaConf.load(path)
        if not isinstance(base, DictConfig):
            raise RequestError(f"config {path} holds a list, expected key: value pairs")
        merged = OmegaConf.to_container(OmegaConf.merge(base, OmegaConf.from_dotlist(list(overrides))), resolve=True)
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


def _holds_nul(value: object) -> bool:
    if isinstance(value, dict):
        return any(_holds_nul(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return any(_holds_nul(part) for part in value)
    return isinstance(value, str) and "\0" in value
