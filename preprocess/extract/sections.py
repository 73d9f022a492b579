"""What a config may say about each extractor. Imports no torch, so reading a config and decoding stay light."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from preprocess.decode.sampling import Sampling
from shared.config import Config

Precision = Literal["float32", "bf16", "fp16"]
Triple = tuple[float, float, float]
TIMM_DEFAULT = "tf_efficientnet_lite0"
S3DG_FOLD = 2  # S3D-G takes blocks of 2 x 2 x 2 pixels as channels
S3D_KINETICS_LEAST_FRAMES = 14


class SectionBase(Config):
    """Base of every section. kind: which extractor. sampling: which frames make a row.

    batch_size: clips per call of the extractor; null is its own choice for the device.
    """

    kind: str
    sampling: Sampling = Field(default_factory=Sampling)
    batch_size: PositiveInt | None = None


class ModelSection(SectionBase):
    """Keys that every extractor with a model has; its batch size moves the last bits and is part of the fingerprint.

    weights: a path, `package:NAME/path`, a name that the extractor knows, or `random` (with `seed`) for trying out.
    seed: of random weights, and of nothing else.
    dtype: of the stored rows. precision: of the model on a GPU (autocast); a CPU always computes in float32.
    l2_normalize: rows of length 1. full_frames: hand the model's own preprocessing full-size frames, instead of
        ones that the decoder has scaled down to the size it is about to resize to (faster, hardly different).
    """

    weights: str | None = None
    seed: int | None = None
    dtype: Literal["float16", "float32"] = "float16"
    precision: Precision = "float32"
    l2_normalize: bool = False
    full_frames: bool = False

    def _require_clips(self) -> None:
        if self.sampling.strategy != "dense":
            raise ValueError(f"{self.kind} sees clips: sampling.strategy must be dense, got {self.sampling.strategy}")

    def _require_single_frames(self) -> None:
        if self.sampling.clip_frames != 1:
            raise ValueError(f"{self.kind} sees single frames: sampling.frames must be 1, got {self.sampling.frames}")


class TimmSection(ModelSection):
    """An image model of the library timm, on single frames.

    model: a timm name. weights: default the packaged file for the default model, `hub` (timm's own) for any other.

    mean, std: of pixels in [0, 1], instead of the model's own. size: pixels of a side, instead of the model's own.
    """

    kind: Literal["timm"] = "timm"
    model: str = TIMM_DEFAULT
    mean: Triple | None = None
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] | None = None
    size: PositiveInt | None = None

    @model_validator(mode="after")
    def _check(self) -> TimmSection:
        self._require_single_frames()
        return self


class S3DHowTo100MSection(ModelSection):
    """S3D-G as released with MIL-NCE for HowTo100M, on clips.

    output: `video_embedding` (512, the joint space with text) or `mixed_5c` (1024, for transfer). size: pixels.
    """

    kind: Literal["s3d_howto100m"] = "s3d_howto100m"
    sampling: Sampling = Field(default_factory=lambda: Sampling(strategy="dense", fps=10.0, frames=32))
    output: Literal["video_embedding", "mixed_5c"] = "video_embedding"
    size: PositiveInt = 224

    @model_validator(mode="after")
    def _check(self) -> S3DHowTo100MSection:
        self._require_clips()
        for key, value in (("sampling.frames", self.sampling.frames), ("size", self.size)):
            if value % S3DG_FOLD:
                raise ValueError(
                    f"{self.kind} folds its input by two: {key} must be even, got {value}; try {value + 1}"
                )
        return self


class S3DKineticsSection(ModelSection):
    """S3D of torchvision, trained on Kinetics-400, on clips.

    weights: default torchvision's KINETICS400_V1, whose published accuracy is for 128 frames at 15 a second.
    """

    kind: Literal["s3d_kinetics"] = "s3d_kinetics"
    sampling: Sampling = Field(default_factory=lambda: Sampling(strategy="dense", fps=15.0, frames=128))

    @model_validator(mode="after")
    def _check(self) -> S3DKineticsSection:
        self._require_clips()
        if self.sampling.frames < S3D_KINETICS_LEAST_FRAMES:
            raise ValueError(
                f"{self.kind}: sampling.frames must be at least {S3D_KINETICS_LEAST_FRAMES}, got {self.sampling.frames}"
            )
        return self


class VideoMAESection(ModelSection):
    """VideoMAE, the mean over its tokens, on clips.

    weights: the folder of a transformers checkpoint, or a hub id.

    Kinetics checkpoints saw every 4th frame of about 30 a second (the default), Something-Something ones every 2nd.
    """

    kind: Literal["videomae"] = "videomae"
    sampling: Sampling = Field(default_factory=lambda: Sampling(strategy="dense", fps=7.5, frames=16))

    @model_validator(mode="after")
    def _check(self) -> VideoMAESection:
        self._require_clips()
        return self


class ClipSection(ModelSection):
    """The vision tower of CLIP, on single frames.

    weights: the folder of a transformers checkpoint (both towers, or vision with projection), or a hub id.
    """

    kind: Literal["clip"] = "clip"

    @model_validator(mode="after")
    def _check(self) -> ClipSection:
        self._require_single_frames()
        return self


# Pixels of one side of a stored picture; larger ones are no thumbnails and no clips but a mistyped number.
Side = Annotated[int, Field(strict=True, ge=1, le=8192)]


class FramesSection(SectionBase):
    """No model: the pixels themselves, as thumbnails or clips.

    size: pixels of a row's picture, one number for a square or [height, width].

    fit: `crop` fills the size and cuts what stands over, evenly on both sides; `pad` keeps all and adds black.
    With `dense` sampling a row is a clip (T, H, W, 3), with every other strategy one picture (H, W, 3).
    """

    kind: Literal["frames"] = "frames"
    size: Side | tuple[Side, Side] = 224
    fit: Literal["crop", "pad"] = "crop"
