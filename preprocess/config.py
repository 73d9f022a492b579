"""What a preprocessing config may say. Sections stand beside the code they configure; this file puts them together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from preprocess.caption_reader import CaptionsConfig
from preprocess.decode import DecodeOptions
from preprocess.extract import ExtractorSection, TimmSection
from preprocess.manifests import SetConfig
from shared.config import Config
from shared.schema import Container, Name


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0))


class RayOptions(Config):
    """address: a running cluster (`auto` finds it); null starts a private one here, with `cpus` CPUs.

    cpus: of a private cluster (default: those that this process may use).
    actors: extraction workers (default: one a GPU, else one a CPU). A worker reserves a GPU and no CPU: CPUs are for
    decode tasks, which could starve otherwise. decode_cpus: what each of these reserves.
    videos_ahead: videos that each worker has decoding before it needs them (default: enough to keep its share of the
    cluster's CPUs at work, 1 or more). object_store_mib: frames in flight, in MiB (default: 64 a CPU, 1024 or more).
    scratch: a folder on every host's own disk, where shards grow before they are copied to the store's disk (default:
    they grow there).
    """

    address: str | None = None
    cpus: PositiveInt = Field(default_factory=_usable_cpus)
    actors: PositiveInt | None = None
    decode_cpus: PositiveFloat = 1
    videos_ahead: NonNegativeInt | None = None
    object_store_mib: Annotated[int, Field(ge=128)] = Field(default_factory=lambda: max(1024, 64 * _usable_cpus()))
    scratch: Path | None = None


def _default_streams() -> dict[str, ExtractorSection]:
    return {"default": TimmSection()}


class PreprocessConfig(Config):
    """inputs: the input manifest. store: the folder to make or go on with.

    Relative paths in a config are taken from the folder that the command is typed in, not from that of the config.

    root: what paths in the manifest may not leave (default: the manifest's folder).
    streams: extractors by the name of the stream they make.
    captions: where captions are that the input manifest does not name.
    sets: manifest sets by name; none to make features only.
    decode: limits of decoding. ray: how the engine `ray` spreads the work.
    container: of the rows, NumPy's or HDF5. shard_videos: inputs per shard (default: by the number of inputs, from 8 to
    1,024). Shards are committed whole: what is done when a run is stopped is its whole shards.
    engine: `ray`, or `here` for this process alone (no deadlines).
    device: what extracts; `auto` takes CUDA where this process sees it. Say `cuda` when only the cluster's other
    hosts have it.
    """

    inputs: Path
    store: Path
    root: Path | None = None
    streams: dict[Name, ExtractorSection] = Field(default_factory=_default_streams, min_length=1)
    captions: CaptionsConfig = CaptionsConfig()
    sets: dict[Name, SetConfig] = Field(default_factory=dict)
    container: Container = "npy"
    shard_videos: PositiveInt | None = None
    decode: DecodeOptions = DecodeOptions()
    engine: Literal["ray", "here"] = "ray"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    ray: RayOptions = Field(default_factory=RayOptions)
