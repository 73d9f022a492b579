"""Frames to rows: one file an extractor, behind the interface in base.py.

A new one is a file with a class (an `Extractor`, made from its section and a device) and one line in `EXTRACTORS`.
Classes are named, not imported: a config is read without torch, and a run loads only the libraries that it uses.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from preprocess.extract.sections import (
    ClipSection,
    FramesSection,
    S3DHowTo100MSection,
    S3DKineticsSection,
    SectionBase,
    TimmSection,
    VideoMAESection,
)
from shared.errors import EnvironmentLacking

if TYPE_CHECKING:
    import torch

    from preprocess.extract.base import Extractor
    from preprocess.extract.runtime import ComputeOutOfMemory

__all__ = [
    "EXTRACTORS",
    "ClipSection",
    "ExtractorSection",
    "FramesSection",
    "S3DHowTo100MSection",
    "S3DKineticsSection",
    "TimmSection",
    "VideoMAESection",
    "build_extractor",
    "with_smaller_batch",
]

# kind: (its section, module:class)
EXTRACTORS: dict[str, tuple[type[SectionBase], str]] = {
    "timm": (TimmSection, "preprocess.extract.timm_image:TimmExtractor"),
    "s3d_howto100m": (S3DHowTo100MSection, "preprocess.extract.s3d_howto100m:S3DHowTo100MExtractor"),
    "s3d_kinetics": (S3DKineticsSection, "preprocess.extract.s3d_kinetics:S3DKineticsExtractor"),
    "videomae": (VideoMAESection, "preprocess.extract.videomae:VideoMAEExtractor"),
    "clip": (ClipSection, "preprocess.extract.clip:ClipExtractor"),
    "frames": (FramesSection, "preprocess.extract.frames:FramesExtractor"),
}

if TYPE_CHECKING:
    ExtractorSection = SectionBase
else:
    # The type of a config key that holds any one extractor, told apart by `kind`.
    ExtractorSection = Annotated[
        Union[tuple(section for section, _ in EXTRACTORS.values())],  # noqa: UP007 - a union of a dict's values
        Field(discriminator="kind"),
    ]


def build_extractor(config: ExtractorSection, device: str | torch.device) -> Extractor:
    """The extractor that `config` describes, for `device` ("cpu", "cuda", "cuda:1").

    Weights are read now; the device is touched at the first `compute`, so the spec can be asked where there is no GPU.
    Raises EnvironmentLacking for missing weights, RequestError for weights or settings that do not fit the model.
    """
    import torch

    module, _, name = EXTRACTORS[config.kind][1].partition(":")
    make = getattr(importlib.import_module(module), name)
    extractor: Extractor = make(config, torch.device(device))
    return extractor


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
