"""From token ids, or stored embeddings, to text embeddings. A new tower is a class, a config in TextTowerConfig and a
line in TEXT_TOWERS (docs/own-model.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import nn

from shared.config import Config
from shared.config_schema import Misfit
from shared.errors import EnvironmentLacking, InputFileError, RequestError
from shared.resources import resolve_resource
from train.model.encoder import check_fit, enable_checkpointing, load_encoder
from train.model.pooling import masked_max, masked_mean
from train.model.projection import projection
from train.model.sizes import Width
from train.tokens import TokenSpec


class WordsConfig(Config):
    """The text tower of MIL-NCE.

    name: the tower. word_dim: size of a word's vector, 300 in the paper. hidden: of the layer behind it, 2048 there.
    table: a file with a word table, (vocab_size, word_dim) as .npy or a torch-saved tensor (the released word2vec.pth),
    row number = token id. train_table: whether the table learns; the paper keeps word2vec fixed.
    """

    name: Literal["words"] = "words"
    word_dim: Width = Field(default=300, ge=1)
    hidden: Width = Field(default=2048, ge=1)
    table: str | None = None
    train_table: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> WordsConfig:
        if self.table is None and not self.train_table:
            raise Misfit(
                "train_table",
                "false without a table would freeze random words: give `table`, or let the words learn (true)",
            )
        return self


class BertConfig(Config):
    """name: the tower. weights: a folder, `package:NAME/folder`, or a hub id of a transformers encoder.

    frozen: the encoder gets no gradient and no dropout, only the projection behind it learns.
    checkpointing: keep the inputs of the encoder's layers alone and compute the rest again for the gradient: less
    memory, one more forward.
    """

    name: Literal["bert"] = "bert"
    weights: str
    frozen: bool = False
    checkpointing: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> BertConfig:
        if self.frozen and self.checkpointing:
            raise ValueError(
                "frozen=true with checkpointing=true: a frozen encoder keeps nothing for a gradient anyway"
            )
        return self


class StoredConfig(Config):
    """Reads the captions' stored embeddings, which their manifest set must have, and no token; a caption without one
    counts as empty nevertheless, so that all towers are asked the same.

    name: the tower. hidden: width of a hidden layer of the projection, 0 for a linear one.
    """

    name: Literal["stored"] = "stored"
    hidden: Width = Field(default=0, ge=0)


TextTowerConfig = Annotated[WordsConfig | BertConfig | StoredConfig, Field(discriminator="name")]


class WordsTower(nn.Module):
    """Embedding, linear, ReLU, max over the words, linear (Miech et al. 2020, section 3.2).

    forward(tokens_NL, mask_NL): int32 or int64 ids and bool, True where a token stands, (N, L) -> (N, dim). Padding
    takes no part in the maximum, unlike in the authors' release.
    """

    def __init__(self, tokens: TokenSpec, dim: int, config: WordsConfig) -> None:
        super().__init__()
        self.words = nn.Embedding(tokens.vocab_size, config.word_dim)
        if config.table is not None:
            self.words.weight.data.copy_(_read_table(config.table, tokens.vocab_size, config.word_dim))
        self.words.weight.requires_grad_(config.train_table)
        self.hidden = nn.Linear(config.word_dim, config.hidden)
        self.projection = nn.Linear(config.hidden, dim)

    def forward(self, tokens_NL: torch.Tensor, mask_NL: torch.Tensor) -> torch.Tensor:
        words_NLD = torch.relu(self.hidden(self.words(tokens_NL)))
        projected: torch.Tensor = self.projection(masked_max(words_NLD, mask_NL))
        return projected


class BertTower(nn.Module):
    """Any transformers encoder, mean over its valid tokens, linear projection.

    forward(tokens_NL, mask_NL): int32 or int64 ids and bool, True where a token stands, (N, L) -> (N, dim).
    """

    def __init__(self, tokens: TokenSpec, dim: int, config: BertConfig) -> None:
        super().__init__()
        self.frozen = config.frozen
        self.encoder = load_encoder(config.weights)
        check_fit(self.encoder, config.weights, tokens.vocab_size, tokens.pad_id, tokens.max_tokens)
        self.encoder.requires_grad_(not config.frozen)
        if config.checkpointing:
            enable_checkpointing(self.encoder, config.weights)
        self.projection = nn.Linear(int(self.encoder.config.hidden_size), dim)

    def train(self, mode: bool = True) -> BertTower:
        """As usual, but a frozen encoder stays in evaluation mode: its dropout would be noise on constants."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    def forward(self, tokens_NL: torch.Tensor, mask_NL: torch.Tensor) -> torch.Tensor:
        # A row of nothing but padding would give attention an empty softmax; its output is dropped by the caller.
        attended_NL = mask_NL.clone()
        attended_NL[:, 0] = True
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            # Some encoders count positions from the ids, in their own type.
            states_NLD = self.encoder(input_ids=tokens_NL.long(), attention_mask=attended_NL.long()).last_hidden_state
        projected: torch.Tensor = self.projection(masked_mean(states_NLD, mask_NL))
        return projected


class StoredTower(nn.Module):
    """A projection of stored embeddings. forward(caption_NE): floating, (N, E) -> (N, dim)."""

    def __init__(self, tokens: TokenSpec, dim: int, config: StoredConfig) -> None:
        """Raises RequestError where captions come without embeddings."""
        super().__init__()
        if tokens.embedding is None:
            raise RequestError(
                "model.text.name=stored reads stored caption embeddings, which these batches do not hold: open the "
                "windows with embeddings=True"
            )
        self.projection = projection(tokens.embedding, dim, config.hidden)

    def forward(self, caption_NE: torch.Tensor) -> torch.Tensor:
        projected: torch.Tensor = self.projection(caption_NE.to(next(self.projection.parameters()).dtype))
        return projected


def _read_table(value: str, vocab_size: int, word_dim: int) -> torch.Tensor:
    path = resolve_resource(value)
    if not path.is_file():
        raise EnvironmentLacking(
            f"word table {value} does not exist; expected a .npy or .pth file of ({vocab_size}, {word_dim}) floats, "
            "or leave `table` out to learn the words from nothing"
        )
    table = _load_array(path)
    if tuple(table.shape) != (vocab_size, word_dim):
        raise InputFileError(
            f"word table {value} has shape {tuple(table.shape)}, expected ({vocab_size}, {word_dim}): one row for "
            "every token id of the manifest set, `word_dim` columns; use the table that belongs to the set's vocabulary"
        )
    if not torch.isfinite(table).all():
        raise InputFileError(f"word table {value} holds NaN or infinity; expected finite numbers, write it again")
    return table


def _load_array(path: Path) -> torch.Tensor:
    try:
        if path.suffix == ".npy":
            return torch.from_numpy(np.load(path, allow_pickle=False).astype(np.float32))
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, ValueError, RuntimeError, UnpicklingError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputFileError(
            f"word table {path} cannot be read: {reason}; expected a .npy file or a saved tensor"
        ) from None
    if not isinstance(loaded, torch.Tensor):
        raise InputFileError(f"word table {path} holds a {type(loaded).__name__}, expected one tensor")
    return loaded.float()


# The tower that reads stored embeddings; all others read tokens.
STORED = "stored"
TEXT_TOWERS: dict[str, Callable[[TokenSpec, int, Any], nn.Module]] = {
    "words": WordsTower,
    "bert": BertTower,
    STORED: StoredTower,
}
