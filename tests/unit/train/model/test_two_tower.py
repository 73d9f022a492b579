"""The whole model: embeddings of a ragged batch, every combination of head and tower."""

from __future__ import annotations

import math

import pytest
import torch

from shared.errors import RequestError
from train.model import VIDEO_HEADS, BertConfig, ModelConfig, TokenSpec, VideoHeadConfig, WordsConfig, build_model

TOKENS = TokenSpec(vocab_size=40, pad_id=0, max_tokens=6)


@pytest.fixture
def ragged():
    draw = torch.Generator().manual_seed(0)
    mask = torch.tensor([[True, True, False], [False, False, False], [True, False, True]])
    tokens = torch.randint(1, 40, (3, 3, 6), generator=draw, dtype=torch.int32)
    token_mask = torch.arange(6) < torch.randint(1, 7, (3, 3, 1), generator=draw)
    return torch.randn(3, 4, 5, generator=draw), torch.ones(3, 4, dtype=torch.bool), tokens, token_mask, mask


@pytest.mark.parametrize("text", ["words", "bert"])
@pytest.mark.parametrize("head", VIDEO_HEADS)
def test_empty_slots_are_zero_whatever_tokens_they_hold(ragged, tiny_bert, head, text):
    tower = WordsConfig(word_dim=5, hidden=7) if text == "words" else BertConfig(weights=str(tiny_bert))
    config = ModelConfig(dim=8, video=VideoHeadConfig(name=head), text=tower)
    model = build_model(config, input_dim=5, tokens=TOKENS).eval()
    video, video_mask, tokens, token_mask, mask = ragged
    first = model(video, video_mask, tokens, token_mask, mask)
    second = model(video, video_mask, torch.where(mask[..., None], tokens, 0), token_mask, mask)
    assert first.video_BD.shape == (3, 8)
    assert first.text_BKD.shape == (3, 3, 8)
    assert not first.text_BKD[~mask].any()
    assert torch.equal(first.text_mask_BK, mask)
    torch.testing.assert_close(first.text_BKD, second.text_BKD)
    assert all(x.isfinite().all() for x in second if x is not None)


def test_a_caption_without_a_token_is_an_empty_slot(ragged):
    model = build_model(ModelConfig(dim=8, text=WordsConfig(word_dim=5, hidden=7)), input_dim=5, tokens=TOKENS)
    video, video_mask, tokens, token_mask, mask = ragged
    token_mask[0, 1] = False
    embeddings = model(video, video_mask, tokens, token_mask, mask)
    assert embeddings.text_mask_BK.sum() == mask.sum() - 1
    assert not embeddings.text_mask_BK[0, 1]


@pytest.mark.parametrize("normalise", [True, False])
def test_normalisation_is_optional_and_zero_vectors_survive_it(ragged, normalise):
    config = ModelConfig(dim=8, normalise=normalise, text=WordsConfig(word_dim=5, hidden=7))
    model = build_model(config, input_dim=5, tokens=TOKENS)
    video, video_mask, tokens, token_mask, mask = ragged
    video_mask[2] = False
    embeddings = model(video, video_mask, tokens, token_mask, mask)
    norms = torch.cat([embeddings.video_BD[:2], embeddings.text_BKD[mask]]).norm(dim=-1)
    assert torch.allclose(norms, torch.ones_like(norms)) == normalise
    assert not embeddings.video_BD[2].any()
    (embeddings.video_BD.sum() + embeddings.text_BKD.sum()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_embedding_apart_is_embedding_together(ragged):
    model = build_model(ModelConfig(dim=8, text=WordsConfig(word_dim=5, hidden=7)), input_dim=5, tokens=TOKENS).eval()
    video, video_mask, tokens, token_mask, mask = ragged
    together = model(video, video_mask, tokens, token_mask, mask)
    torch.testing.assert_close(model.embed_video(video, video_mask), together.video_BD)
    torch.testing.assert_close(model.embed_text(tokens[mask], token_mask[mask]), together.text_BKD[mask])
    assert math.isclose(together.temperature.item(), 0.07, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("give", "described"),
    [
        (lambda x_BD: x_BD[:, :7], r"a tensor of shape \(3, 7\) of torch.float32"),
        (lambda x_BD: x_BD[:2], r"a tensor of shape \(2, 8\) of torch.float32"),
        (lambda x_BD: x_BD[:, None], r"a tensor of shape \(3, 1, 8\) of torch.float32"),
        (lambda x_BD: x_BD.double(), r"a tensor of shape \(3, 8\) of torch.float64"),
        (lambda x_BD: x_BD.int(), r"a tensor of shape \(3, 8\) of torch.int32"),
        (lambda x_BD: (x_BD, x_BD), "a tuple"),
        (lambda _: None, "a NoneType"),
    ],
)
@pytest.mark.parametrize("normalise", [True, False])
def test_a_tower_of_ones_own_that_gives_no_embeddings_is_named(ragged, give, described, normalise):
    class Mine(torch.nn.Module):
        def forward(self, video_BTD, mask_BT):
            return give(video_BTD.new_ones(len(video_BTD), 8))

    config = ModelConfig(dim=8, normalise=normalise, text=WordsConfig(word_dim=5, hidden=7))
    model = build_model(config, input_dim=5, tokens=TOKENS)
    model.video = Mine()
    with pytest.raises(RequestError, match=rf"Mine\.forward gave {described}, expected a tensor of shape \(3, 8\)"):
        model(*ragged)
