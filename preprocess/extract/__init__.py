"""Frames to rows: one file an extractor, behind the interface in base.py.

A new one is a file with a section (its `kind` a literal) and a class, one line in `EXTRACTORS` and its name in
`ExtractorSection`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import torch
from pydantic import Field

from preprocess.extract.base import Extractor
from preprocess.extract.frames import FramesExtractor, FramesSection
from preprocess.extract.runtime import ComputeOutOfMemory
from preprocess.extract.timm_image import TimmExtractor, TimmSection
from shared.errors import EnvironmentLacking

ExtractorSection = Annotated[TimmSection | FramesSection, Field(discriminator="kind")]

EXTRACTORS: dict[str, Callable[[Any, torch.device], Extractor]] = {
    "timm": TimmExtractor,
    "frames": FramesExtractor,
}


def build_extractor(config: ExtractorSection, device: str | torch.device) -> Extractor:
    """The extractor that `config` describes, for `device` ("cpu", "cuda", "cuda:1").

    Weights are read now; the device is touched at the first `compute`, so the spec can be asked where there is no GPU.
    Raises EnvironmentLacking for missing weights, RequestError for weights or settings that do not fit the model.
    """
    return EXTRACTORS[config.kind](config, torch.device(device))


def with_smaller_batch(config: ExtractorSection, signal: ComputeOutOfMemory) -> ExtractorSection:
    """`config` with half the compute shape that did not fit: for the whole run, from the start of the shard on.

    Raises EnvironmentLacking, with the allocator's summary, where one clip alone did not fit.
    """
    if signal.batch_size == 1:
        raise EnvironmentLacking(
            f"extractor {config.kind}: not even one clip fits into memory; use a device with more, a smaller model, "
            f"fewer frames a clip, or `precision: bf16`\n{signal.memory_summary}"
        )
    return config.model_copy(update={"batch_size": signal.batch_size // 2})
