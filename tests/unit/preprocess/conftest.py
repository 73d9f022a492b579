"""Fixtures of the preprocessing tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORDS = ["[PAD]", "[UNK]", "[BOS]", "[EOS]", *"abcdefgh"]


@pytest.fixture
def tiny_clip() -> Callable[..., Any]:
    """Makes a CLIP checkpoint with its tokenizer, whose words are a to h, in a folder; answers with the model."""

    def make(folder: Path, seed: int = 0, special: bool = True) -> Any:
        import torch
        from tokenizers import Tokenizer, models, pre_tokenizers, processors
        from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, PreTrainedTokenizerFast

        torch.manual_seed(seed)
        text = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
        text |= {"vocab_size": len(WORDS), "max_position_embeddings": 12}
        text |= {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
        vision = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        vision |= {"image_size": 32, "patch_size": 16, "projection_dim": 8}
        text["projection_dim"] = 8
        model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)).eval()
        for parameter in model.parameters():
            parameter.data.normal_(0, 0.3)
        model.save_pretrained(folder)
        CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
        backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
        backend.pre_tokenizer = pre_tokenizers.Whitespace()
        if special:
            backend.post_processor = processors.TemplateProcessing(
                single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 2), ("[EOS]", 3)]
            )
        PreTrainedTokenizerFast(
            tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]"
        ).save_pretrained(folder)
        return model

    return make
