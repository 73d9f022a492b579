"""What the extractors with a model share: device, precision, and the way from output to stored rows."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import nn

from preprocess.extract.base import ExtractorSpec, check_clip
from preprocess.extract.runtime import check_device, device_name
from preprocess.extract.sections import ModelSection, Precision

_AUTOCAST: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


class ModelExtractor(ABC):
    """Base of extractors that run a torch model. A subclass makes the model and says `prepare` and `_features`.

    The model stays on the CPU until the first `compute`: its facts can be asked where its device is not.
    """

    # The one memory format, chosen by measurement (facts of the project): None leaves tensors as they are.
    memory_format: torch.memory_format | None = None

    def __init__(self, section: ModelSection, device: torch.device, model: nn.Module, spec: ExtractorSpec) -> None:
        self.spec = spec
        self._section = section
        self._device = device
        self._model = model.eval().requires_grad_(False)
        self._frames = spec.sampling.clip_frames
        self._placed = False

    def prepare(self, frames_THWC: np.ndarray) -> torch.Tensor:
        check_clip(frames_THWC, self._frames)
        return self._prepare(frames_THWC)

    def compute(self, clips: torch.Tensor) -> np.ndarray:
        if clips.shape[0] != self.spec.batch_size:
            raise ValueError(
                f"compute takes exactly {self.spec.batch_size} clips, got {clips.shape[0]}; pad the last batch"
            )
        self._place()
        on_device = clips.to(self._device, non_blocking=True)
        if self.memory_format is not None and on_device.is_floating_point():
            on_device = on_device.contiguous(memory_format=self.memory_format)
        autocast = _AUTOCAST.get(effective_precision(self._section, self._device))
        with torch.inference_mode(), torch.autocast(self._device.type, dtype=autocast, enabled=autocast is not None):
            features_BD = self._features(on_device)
        return self._to_rows(features_BD)

    @abstractmethod
    def _prepare(self, frames_THWC: np.ndarray) -> torch.Tensor:
        """As `Extractor.prepare`; the clip has been checked."""

    @abstractmethod
    def _features(self, clips: torch.Tensor) -> torch.Tensor:
        """A batch of prepared clips on the device to features (B, D) of any float type."""

    def _place(self) -> None:
        if self._placed:
            return
        check_device(self._device)
        if self._device.type == "cpu" and torch.get_num_threads() != 1:
            raise RuntimeError(
                "features are defined for one torch thread; call configure_torch_for_determinism() first"
            )
        self._model.to(self._device)
        if self.memory_format is not None:
            self._model.to(memory_format=self.memory_format)
        self._placed = True

    def _to_rows(self, features_BD: torch.Tensor) -> np.ndarray:
        rows_BD = features_BD.float()
        if self._section.l2_normalize:
            rows_BD = nn.functional.normalize(rows_BD, dim=-1)
        rows: np.ndarray = rows_BD.to(getattr(torch, self._section.dtype)).cpu().contiguous().numpy()
        return rows


def effective_precision(section: ModelSection, device: torch.device) -> Precision:
    """What the model really computes in: autocast is for GPUs only."""
    return section.precision if device.type == "cuda" else "float32"


def model_spec(
    section: ModelSection,
    device: torch.device,
    *,
    dim: int,
    batch_size: int,
    short_side: int,
    memory_format: torch.memory_format | None,
    identity: dict[str, object],
    versions: dict[str, str],
) -> ExtractorSpec:
    """The spec of an extractor whose rows are vectors of `dim`; `batch_size` is the default for its device."""
    size = section.batch_size or batch_size
    common: dict[str, object] = {
        "dim": dim,
        "dtype": section.dtype,
        "precision": effective_precision(section, device),
        "l2_normalize": section.l2_normalize,
        "batch_size": size,
        "cpu_threads": 1,
        "memory_format": str(memory_format or torch.contiguous_format).removeprefix("torch."),
        "short_side": None if section.full_frames else short_side,
        "sampling": section.sampling.model_dump(mode="json"),
    }
    return ExtractorSpec(
        kind="features",
        row_shape=(dim,),
        dtype=section.dtype,
        sampling=section.sampling,
        batch_size=size,
        short_side=None if section.full_frames else short_side,
        identity={**identity, **common},
        environment={"torch": torch.__version__, **versions, "device": device_name(device)},
    )
