"""Two towers and a temperature. Start at two_tower.py."""

from train.model.text_tower import TEXT_TOWERS, BertConfig, StoredConfig, WordsConfig
from train.model.two_tower import Embeddings, ModelConfig, TwoTower, build_model
from train.model.video_head import VIDEO_HEADS, VideoHeadConfig
from train.tokens import TokenSpec

__all__ = [
    "TEXT_TOWERS",
    "VIDEO_HEADS",
    "BertConfig",
    "Embeddings",
    "ModelConfig",
    "StoredConfig",
    "TokenSpec",
    "TwoTower",
    "VideoHeadConfig",
    "WordsConfig",
    "build_model",
]
