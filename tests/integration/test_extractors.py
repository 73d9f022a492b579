"""Every extractor: golden values, a real frame, and rows that depend on nothing but their own clip."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib

import numpy as np
import pytest
import timm
import timm.data
import torch
from torchvision.models.video import s3d
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    VideoMAEConfig,
    VideoMAEForVideoClassification,
    VideoMAEImageProcessor,
)

from preprocess.decode.decord_library import decord
from preprocess.decode.sampling import Sampling
from preprocess.extract import (
    EXTRACTORS,
    ClipSection,
    FramesSection,
    S3DHowTo100MSection,
    S3DKineticsSection,
    TimmSection,
    VideoMAESection,
    build_extractor,
    with_smaller_batch,
)
from preprocess.extract.batcher import FixedBatcher
from preprocess.extract.runtime import ComputeOutOfMemory, configure_torch_for_determinism
from preprocess.extract.s3dg import S3DG
from preprocess.extract.timm_image import DEFAULT_WEIGHTS
from preprocess.extract.weights import read_state
from shared.resources import resolve_resource


@pytest.fixture(autouse=True)
def actor_torch():
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    configure_torch_for_determinism()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


# Weights in the released formats, made on the spot.


def dense(frames: int) -> Sampling:
    return Sampling(strategy="dense", fps=5.0, frames=frames)


def saved(model: torch.nn.Module, path):
    torch.save(model.state_dict(), path)
    return str(path)


def tiny_videomae(folder) -> str:
    config = VideoMAEConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        num_frames=4,
        num_labels=5,
    )
    VideoMAEForVideoClassification(config).save_pretrained(folder)
    VideoMAEImageProcessor(
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
        size={"shortest_edge": 32},
        crop_size={"height": 32, "width": 32},
    ).save_pretrained(folder)
    return str(folder)


def tiny_clip(folder) -> str:
    vision = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 8,
    }
    text = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)).save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return str(folder)


# kind: a section from a folder for its weights, small enough for a CPU, three clips a batch.
TINY = {
    "timm": lambda folder: TimmSection(
        model="mobilenetv3_small_050",
        weights=saved(timm.create_model("mobilenetv3_small_050"), folder / "w.pth"),
        size=64,
        batch_size=3,
    ),
    "s3d_howto100m": lambda folder: S3DHowTo100MSection(
        weights=saved(S3DG(), folder / "w.pth"), sampling=dense(4), size=32, batch_size=3
    ),
    "s3d_kinetics": lambda folder: S3DKineticsSection(
        weights=saved(s3d(), folder / "w.pth"), sampling=dense(14), batch_size=3
    ),
    "videomae": lambda folder: VideoMAESection(weights=tiny_videomae(folder), sampling=dense(4), batch_size=3),
    "clip": lambda folder: ClipSection(weights=tiny_clip(folder), batch_size=3),
    "frames": lambda folder: FramesSection(size=16, batch_size=3),
}


# torchvision's transform allows no size but 224, and at least 14 frames of that are slow.
KINDS = [pytest.param(kind, marks=pytest.mark.full) if kind == "s3d_kinetics" else kind for kind in sorted(EXTRACTORS)]


@pytest.fixture(params=KINDS)
def section(request, tmp_path):
    torch.manual_seed(0)
    return TINY[request.param](tmp_path)


def clips_for(section, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (section.sampling.clip_frames, 48, 64, 3)
    return [rng.integers(0, 256, shape, dtype=np.uint8) for _ in range(count)]


class Rows:
    def __init__(self):
        self.of = {}

    def put(self, video, rows):
        self.of.setdefault(video, []).append(rows)

    def fail(self, video, failure):
        raise AssertionError(f"{video}: {failure}")

    def bytes_of(self, video):
        return np.concatenate(self.of[video]).tobytes()


def test_a_row_has_the_same_bytes_at_every_place_and_beside_every_neighbour(section):
    extractor = build_extractor(section, "cpu")
    probe, *others = (extractor.prepare(clip) for clip in clips_for(section, 5))
    alone = extractor.compute(torch.stack([probe] * 3))[0]
    assert (alone.shape, alone.dtype.name) == (extractor.spec.row_shape, extractor.spec.dtype)
    if extractor.spec.kind == "features":
        assert np.isfinite(alone).all()
        assert np.ptp(alone) > 0
    for place in range(3):
        for neighbours in (others[:2], others[2:]):
            batch = [*neighbours[:place], probe, *neighbours[place:]]
            assert extractor.compute(torch.stack(batch))[place].tobytes() == alone.tobytes()


def test_videos_get_the_same_rows_together_as_alone(section):
    extractor = build_extractor(section, "cpu")
    videos = {name: clips_for(section, 5)[first : first + 2] for first, name in enumerate("abcd")}
    together = Rows()
    batcher = FixedBatcher(extractor, together)
    for turn in range(2):
        for name, clips in videos.items():
            batcher.add(name, clips[turn])
    batcher.flush()
    for name, clips in videos.items():
        alone = Rows()
        own = FixedBatcher(extractor, alone)
        for clip in clips:
            own.add(name, clip)
        own.flush()
        assert together.bytes_of(name) == alone.bytes_of(name)


def test_the_identity_is_json_without_paths_and_repeats_itself(section, tmp_path):
    spec = build_extractor(section, "cpu").spec
    text = json.dumps(spec.identity, sort_keys=True)
    assert str(tmp_path) not in text
    assert json.loads(text) == spec.identity
    assert json.dumps(build_extractor(section, "cpu").spec.identity, sort_keys=True) == text
    assert all(isinstance(value, str) for value in spec.environment.values())


@pytest.mark.parametrize("kind", sorted(set(EXTRACTORS) - {"frames"}))
def test_other_weights_are_another_identity(kind, tmp_path):
    identities = []
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        torch.manual_seed(seed)
        identities.append(build_extractor(TINY[kind](folder), "cpu").spec.identity)
    assert identities[0]["weights"] != identities[1]["weights"]
    assert {**identities[0], "weights": 0} == {**identities[1], "weights": 0}


def test_half_the_compute_shape_is_an_extractor_like_any_other(section):
    smaller = build_extractor(with_smaller_batch(section, ComputeOutOfMemory(3, "")), "cpu")
    assert smaller.spec.batch_size == 1
    rows = smaller.compute(smaller.prepare(clips_for(section, 1)[0])[None])
    assert rows.shape == (1, *smaller.spec.row_shape)


_OTHER_PROCESS = """
import sys, numpy as np
from preprocess.extract import TimmSection, build_extractor
from preprocess.extract.runtime import configure_torch_for_determinism
configure_torch_for_determinism()
extractor = build_extractor(TimmSection(batch_size=2), "cpu")
clip = extractor.prepare(np.random.default_rng(0).integers(0, 256, (1, 200, 300, 3), dtype=np.uint8))
sys.stdout.buffer.write(extractor.compute(clip[None].repeat(2, 1, 1, 1))[0].tobytes())
"""


def test_another_process_gives_the_same_bytes():
    outputs = [
        subprocess.run([sys.executable, "-c", _OTHER_PROCESS], capture_output=True, check=True).stdout for _ in range(2)
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 1280 * 2


# Golden values and real frames.


def golden_tensor(key: str, shape: list[int]) -> torch.Tensor:
    """The filling that the golden outputs were computed with."""
    draw = np.random.RandomState(zlib.crc32(key.encode()))
    x = draw.standard_normal(shape)
    if key.endswith("num_batches_tracked"):
        return torch.zeros(shape, dtype=torch.int64)
    if key.endswith("running_var"):
        x = 0.75 + 0.5 * draw.random_sample(shape)
    elif key.endswith("running_mean"):
        x = 0.1 * x
    elif len(shape) == 1:
        x = float(".bn" in key and key.endswith("weight")) + 0.1 * x
    else:
        x = x * np.sqrt(2 / np.prod(shape[1:]))
    return torch.from_numpy(np.asarray(x, np.float32))


@pytest.fixture(scope="module")
def golden_checkpoint(material_path, tmp_path_factory):
    """A file with exactly the released keys and shapes."""
    listed = json.loads(material_path("golden", "s3d_howto100m_state_dict.json").read_text())
    path = tmp_path_factory.mktemp("golden") / "s3d_howto100m.pth"
    torch.save({key: golden_tensor(key, shape) for key, shape in listed.items()}, path)
    return path


@pytest.mark.parametrize("output", ["video_embedding", "mixed_5c"])
def test_s3d_howto100m_gives_the_golden_values(golden_checkpoint, material_path, output):
    golden = np.load(material_path("golden", "s3d_howto100m_golden.npz"))
    clips = golden["clip_uint8_BTHWC"]
    section = S3DHowTo100MSection(
        weights=str(golden_checkpoint), sampling=dense(16), size=64, output=output, dtype="float32", batch_size=2
    )
    extractor = build_extractor(section, "cpu")
    rows = extractor.compute(torch.stack([extractor.prepare(clip) for clip in clips]))
    error = np.abs(rows - golden[output]).max() / np.abs(golden[output]).max()
    assert error < 1e-4
    scale = np.maximum(np.abs(golden[output]), 1e-3 * np.abs(golden[output]).max())
    assert (np.abs(rows - golden[output]) / scale).max() < 1e-4


def test_the_default_extractor_sees_a_bottle_in_real_frames(material_path):
    """Meaning, not only numbers: the packaged classifier on the stored features names what the film shows."""
    reader = decord.VideoReader(str(material_path("corpus", "videos", "bottle-detection.mp4")), num_threads=1)
    frames = [reader.next().asnumpy() for _ in range(64)][::8]
    extractor = build_extractor(TimmSection(), "cpu")
    rows = extractor.compute(torch.stack([extractor.prepare(frame[None]) for frame in frames]))
    state = read_state(resolve_resource(DEFAULT_WEIGHTS))
    logits = torch.from_numpy(rows).float() @ state["_fc.weight"].T + state["_fc.bias"]
    names = timm.data.ImageNetInfo()
    for best in logits.topk(5).indices.tolist():
        assert any("bottle" in names.index_to_description(index) for index in best)


# On a GPU.


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_a_gpu_gives_repeatable_rows_close_to_the_cpus(section, precision):
    if section.kind == "frames":
        pytest.skip("has no model")
    section = section.model_copy(update={"precision": precision, "dtype": "float32"})
    on_cpu, on_gpu = build_extractor(section, "cpu"), build_extractor(section, "cuda")
    clips = torch.stack([on_cpu.prepare(clip) for clip in clips_for(section, 3)])
    rows = on_gpu.compute(clips)
    assert rows.tobytes() == on_gpu.compute(clips).tobytes()
    swapped = on_gpu.compute(clips.flip(0))[::-1]
    np.testing.assert_array_equal(rows, swapped)
    reference = on_cpu.compute(clips)
    tolerance = {"float32": 1e-4, "fp16": 2e-2, "bf16": 1e-1}[precision]
    assert np.abs(rows - reference).max() < tolerance * np.abs(reference).max()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_without_room_gives_the_signal_with_the_memory_summary():
    section = TimmSection(batch_size=64)
    extractor = build_extractor(section, "cuda")
    batcher = FixedBatcher(extractor, Rows())
    clips = clips_for(section, 1)
    for _ in range(63):
        batcher.add("a", clips[0])
    torch.cuda.set_per_process_memory_fraction(1e-4)
    try:
        with pytest.raises(ComputeOutOfMemory, match="64 clips") as caught:
            batcher.add("a", clips[0])
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "CUDA memory summary" in caught.value.memory_summary
