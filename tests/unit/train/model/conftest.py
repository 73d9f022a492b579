"""A complete tiny BERT on disk."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertModel


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    """A folder with a random BERT: 40 ids, pad 0, 16 positions, dropout on."""
    folder = tmp_path_factory.mktemp("weights") / "bert"
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    BertModel(BertConfig(vocab_size=40, max_position_embeddings=16, **sizes)).save_pretrained(folder)
    return folder
