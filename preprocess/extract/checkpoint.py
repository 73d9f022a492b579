"""Checkpoints of the transformers library: found by path or hub id, loaded whole or refused, hashed file by file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers.utils import logging as transformers_logging

from preprocess.extract.hub import fetch
from preprocess.extract.weights import complain_about_keys, file_digest, find_weights
from shared.errors import RequestError

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
# What a configuration file says about its origin and its labels does not move a feature.
_NO_EFFECT = {"transformers_version", "_name_or_path", "id2label", "label2id", "architectures", "dtype", "torch_dtype"}


def find_checkpoint(weights: str | None, model: str, example: str) -> Path:
    """The folder of a checkpoint: `weights` is a folder, `package:NAME/folder`, or a hub id to be fetched.

    Raises EnvironmentLacking where it is neither here nor to be had, RequestError where the folder is not a checkpoint.
    """
    by_name = f"`weights: {example}`, or another id on the hub"
    if weights is not None and _HUB_ID.fullmatch(weights) and not Path(weights).exists():
        folder = fetch(weights, ["*.json", "*.safetensors"], model, by_name)
        return folder if any(folder.glob("*.safetensors")) else fetch(weights, ["*.json", "*.bin"], model, by_name)
    folder = find_weights(weights, model, by_name, folder=True)
    if not (folder / "config.json").is_file():
        raise RequestError(
            f"{model}: {folder} is not a transformers checkpoint, it has no config.json; give the folder"
        )
    return folder


def checkpoint_digest(folder: Path) -> dict[str, str]:
    """xxh3-128 of every file of weights in `folder`, by name."""
    files = sorted([*folder.glob("model*.safetensors")] or [*folder.glob("pytorch_model*.bin")])
    return {file.name: file_digest(file) for file in files}


def load_checkpoint(
    cls: Any, folder: Path, name: str, *, config: Any = None, ignore: tuple[str, ...] = ()
) -> nn.Module:
    """`cls.from_pretrained(folder)` in float32 on the CPU, with every key found and every key used.

    ignore: beginnings of keys that other towers of the checkpoint own.
    Raises RequestError naming the first missing, unexpected and differently shaped keys, or what cannot be read.
    """
    if not checkpoint_digest(folder):
        raise RequestError(f"{name}: {folder} holds no model*.safetensors and no pytorch_model*.bin")
    try:
        with _quiet():
            model, info = cls.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except (OSError, SafetensorError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise RequestError(
            f"{name}: checkpoint {folder} cannot be read: {reason}; download or save it again"
        ) from error
    complain_about_keys(
        name,
        folder,
        missing=sorted(info["missing_keys"]),
        unexpected=sorted(key for key in info["unexpected_keys"] if not key.startswith(ignore)),
        mismatched=[
            f"{key} {tuple(found)} instead of {tuple(own)}" for key, found, own in sorted(info["mismatched_keys"])
        ],
    )
    loaded: nn.Module = model
    return loaded


def load_processor(cls: Any, folder: Path, name: str) -> Any:
    """The image processor that was saved with the checkpoint, never the class's own defaults.

    Raises RequestError where there is none.
    """
    try:
        return cls.from_pretrained(folder, local_files_only=True)
    except OSError as error:
        raise RequestError(
            f"{name}: {folder} holds no preprocessor_config.json, and size, mean and deviation are not to be guessed; "
            "save the checkpoint's own image processor into it"
        ) from error


def plain_config(config: Any) -> dict[str, object]:
    """A configuration or processor of transformers as JSON values, without what moves no feature."""
    plain: dict[str, object] = json.loads(json.dumps(config.to_dict(), default=str, sort_keys=True))
    return {key: value for key, value in plain.items() if key not in _NO_EFFECT}


def processor_short_side(size: Any) -> int:
    """The shorter side, in pixels, that a processor's `size` asks for (the longer of two given ones)."""
    named = dict(size)
    edges = [value for key, value in named.items() if value and key in {"shortest_edge", "height", "width"}]
    if not edges:
        raise RequestError(
            f"the checkpoint's image processor has size {named}; expected shortest_edge, or height and width"
        )
    return int(max(edges))


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no table of keys: what is wrong is said in one message of ours."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(transformers_logging.CRITICAL)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
