"""The video-text model: a head over stored video rows, a text tower over token ids, a temperature."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from shared.config import Config
from shared.errors import RequestError
from train.model.pooling import zero_padding
from train.model.sizes import Width
from train.model.temperature import Temperature, TemperatureConfig
from train.model.text_tower import STORED, TEXT_TOWERS, TextTowerConfig, WordsConfig
from train.model.video_head import VIDEO_HEADS, VideoHeadConfig
from train.tokens import TokenSpec

_NO_MEMORY = re.compile(r"tried to allocate (\d+) bytes")


class ModelConfig(Config):
    """dim: size of the joint embedding. normalise: L2-normalise both sides (the original MIL-NCE does not).

    video: rows to one vector. text: a caption to one vector. temperature: what similarities are divided by.
    logit_bias: where the learned bias of the logits starts (SigLIP: -10), for loss sigmoid; null for the other losses.
    """

    dim: Width = Field(default=256, ge=1)
    normalise: bool = True
    video: VideoHeadConfig = VideoHeadConfig()
    text: TextTowerConfig = WordsConfig()
    temperature: TemperatureConfig = TemperatureConfig()
    logit_bias: float | None = None

    @property
    def reads_embeddings(self) -> bool:
        """Whether the text tower reads the captions' stored embeddings, which batches hold only then."""
        return self.text.name == STORED


class Embeddings(NamedTuple):
    """video_BD, text_BKD floating; text_mask_BK bool, False for an empty slot (zero text).

    temperature: scalar. bias: scalar, or None for a model without.
    """

    video_BD: torch.Tensor
    text_BKD: torch.Tensor
    text_mask_BK: torch.Tensor
    temperature: torch.Tensor
    bias: torch.Tensor | None


class TwoTower(nn.Module):
    """Both towers in one module, so that DDP sees every parameter that learns, the temperature among them."""

    def __init__(self, config: ModelConfig, *, input_dim: int | Sequence[int], tokens: TokenSpec) -> None:
        super().__init__()
        input_dims = (input_dim,) if isinstance(input_dim, int) else tuple(input_dim)
        self.dim = config.dim
        self.normalise = config.normalise
        self.reads_embeddings = config.reads_embeddings
        self.video = VIDEO_HEADS[config.video.name](input_dims, config.dim, config.video)
        self.text = TEXT_TOWERS[config.text.name](tokens, config.dim, config.text)
        self.temperature = Temperature(config.temperature)
        self.logit_bias = None if config.logit_bias is None else nn.Parameter(torch.tensor(config.logit_bias))

    def forward(
        self,
        video_BTD: torch.Tensor,
        video_mask_BT: torch.Tensor,
        tokens_BKL: torch.Tensor,
        token_mask_BKL: torch.Tensor,
        caption_mask_BK: torch.Tensor,
        caption_BKE: torch.Tensor | None = None,
    ) -> Embeddings:
        """Embeddings of a batch as `train.batch.Batch` describes it. A caption without a token counts as empty, also
        where it has a stored embedding."""
        text_mask_BK = caption_mask_BK & token_mask_BKL.any(dim=-1)
        rows, candidates, _ = tokens_BKL.shape
        if self.reads_embeddings:
            text_ND = self.embed_stored(_stored(caption_BKE, text_mask_BK))
        else:
            text_ND = self.embed_text(tokens_BKL.flatten(0, 1), token_mask_BKL.flatten(0, 1))
        text_BKD = zero_padding(text_ND.view(rows, candidates, -1), text_mask_BK)
        video_BD = self.embed_video(video_BTD, video_mask_BT)
        return Embeddings(video_BD, text_BKD, text_mask_BK, self.temperature(), self.logit_bias)

    def embed_video(self, video_BTD: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
        """(B, T, channels of all streams), bool (B, T) -> (B, dim)."""
        return self._finish(self.video, self.video(video_BTD, mask_BT), len(video_BTD), "clip")

    def embed_text(self, tokens_NL: torch.Tensor, mask_NL: torch.Tensor) -> torch.Tensor:
        """int32 or int64 ids, bool where a token stands, (N, L) -> (N, dim). Raises RequestError for a tower that reads
        stored embeddings."""
        if self.reads_embeddings:
            raise RequestError(
                f"model.text.name={STORED} reads stored caption embeddings and knows no tokens: it embeds captions of "
                "a manifest set that has embeddings, and no other text; for that, train a words or bert tower"
            )
        return self._finish(self.text, self.text(tokens_NL, mask_NL), len(tokens_NL), "caption")

    def embed_stored(self, caption_NE: torch.Tensor) -> torch.Tensor:
        """Stored embeddings, floating, (N, E) -> (N, dim), by a tower that reads them."""
        return self._finish(self.text, self.text(caption_NE), len(caption_NE), "caption")

    def _finish(self, tower: nn.Module, x_ND: object, rows: int, unit: str) -> torch.Tensor:
        """Raises RequestError for a tower, of somebody's own, that gives something else than embeddings."""
        wide = next(self.parameters()).dtype == torch.float64
        dtypes = [torch.float64] if wide else [torch.float32, torch.bfloat16, torch.float16]
        if not isinstance(x_ND, torch.Tensor) or x_ND.shape != (rows, self.dim) or x_ND.dtype not in dtypes:
            raise RequestError(
                f"{type(tower).__name__}.forward gave {_described(x_ND)}, expected a tensor of shape ({rows}, "
                f"{self.dim}), an embedding of model.dim numbers for each {unit}, of {' or '.join(map(str, dtypes))}: "
                "mend its forward"
            )
        return F.normalize(x_ND, dim=-1) if self.normalise else x_ND


def _described(x: object) -> str:
    return (
        f"a tensor of shape {tuple(x.shape)} of {x.dtype}" if isinstance(x, torch.Tensor) else f"a {type(x).__name__}"
    )


def _stored(caption_BKE: torch.Tensor | None, mask_BK: torch.Tensor) -> torch.Tensor:
    """(B x K, E): zeros for what is masked. Raises RequestError where there are no stored embeddings."""
    if caption_BKE is None:
        raise RequestError(
            f"model.text.name={STORED} reads stored caption embeddings, and the batch has none: open the windows with "
            "embeddings=True"
        )
    return zero_padding(caption_BKE.flatten(0, 1)[:, None], mask_BK.flatten()[:, None])[:, 0]


def build_model(config: ModelConfig, *, input_dim: int | Sequence[int], tokens: TokenSpec) -> TwoTower:
    """The configured model with fresh weights from torch's current random state.

    input_dim: channels of a stored video row; of several streams, those of each, in the order in which they stand in a
    row. Raises EnvironmentLacking for absent weights, RequestError for tokens
    that do not fit the text tower and for sizes that do not fit into memory.
    """
    try:
        return TwoTower(config, input_dim=input_dim, tokens=tokens)
    except RuntimeError as error:
        # torch has no class of its own for a CPU allocator that got nothing; the message tells it from a bug.
        wanted = _NO_MEMORY.search(str(error))
        if wanted is None:
            raise
        raise RequestError(
            f"the model does not fit into memory: one of its tensors needs {int(wanted[1]):,} bytes (model.dim="
            f"{config.dim}, {tokens.vocab_size} token ids); lower model.dim and the sizes in model.video and model.text"
        ) from None
