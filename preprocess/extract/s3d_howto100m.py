"""`s3d_howto100m`: S3D-G as trained with MIL-NCE on HowTo100M, on dense clips.

Conventions of the release: frames in [0, 1] without mean or deviation, the centre square scaled to 200 to 256 pixels;
clips of 32 frames at 10 frames a second, or 16 at 5.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image

from preprocess.extract.model_extractor import ModelExtractor, model_spec
from preprocess.extract.pixels import crop_and_scale
from preprocess.extract.s3dg import S3DG, S3DGOutput
from preprocess.extract.sections import S3DHowTo100MSection
from preprocess.extract.weights import RANDOM, file_digest, fill, find_weights, random_model, read_state, state_digest

_NAME = "s3d_howto100m"
_BY_NAME = (
    "download s3d_howto100m.pth (https://www.rocq.inria.fr/cluster-willow/amiech/howto100m/s3d_howto100m.pth) "
    "and give its path"
)
_TEXT_TOWER = "text_module."  # stands in the same released file; rows of videos do not need it
_DIMS = {"video_embedding": 512, "mixed_5c": 1024}


class S3DHowTo100MExtractor(ModelExtractor):
    """Prepared clips are uint8 (T, size, size, 3); the network sees them divided by 255."""

    def __init__(self, section: S3DHowTo100MSection, device: torch.device) -> None:
        model, digest = _make_model(section)
        self._size = section.size
        self._output = section.output
        spec = model_spec(
            section,
            device,
            dim=_DIMS[section.output],
            batch_size=16 if device.type == "cuda" else 1,  # on a CPU one clip at a time is also the fastest (measured)
            short_side=section.size,
            memory_format=self.memory_format,
            identity={
                "extractor": _NAME,
                "revision": 1,
                "weights": digest,
                "output": section.output,
                "size": section.size,
                "filter": "bilinear",
            },
            versions={"pillow": Image.__version__},
        )
        super().__init__(section, device, model, spec)

    def _prepare(self, frames_THWC: np.ndarray) -> torch.Tensor:
        size, bilinear = self._size, Image.Resampling.BILINEAR
        return torch.from_numpy(np.stack([crop_and_scale(frame, size, size, bilinear) for frame in frames_THWC]))

    def _features(self, clips: torch.Tensor) -> torch.Tensor:
        output: S3DGOutput = self._model(clips.permute(0, 4, 1, 2, 3).float() / 255)
        return output.video_embedding_BD if self._output == "video_embedding" else output.mixed_5c_BD


def _make_model(section: S3DHowTo100MSection) -> tuple[S3DG, dict[str, str]]:
    if section.weights == RANDOM:
        model = random_model(_NAME, section.seed, S3DG)
        return model, {"state_xxh3_128": state_digest(model.state_dict())}
    path = find_weights(section.weights, _NAME, _BY_NAME)
    state = {key: value for key, value in read_state(path).items() if not key.startswith(_TEXT_TOWER)}
    model = S3DG()
    fill(model, state, _NAME, path)
    return model, {"file_xxh3_128": file_digest(path)}
