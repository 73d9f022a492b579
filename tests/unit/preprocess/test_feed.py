"""From a media file to events: how they travel, and what a file that is not there is told as."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from preprocess.caption_reader import CaptionReader, CaptionsConfig
from preprocess.decode import DecodeOptions, FrameBlock, Sampling
from preprocess.feed import Begun, DecodeOrder, Ended, Opened, Started, decode_events, decode_packs
from preprocess.inputs import read_inputs
from preprocess.plan import make_plan
from shared.errors import Failure, InputFileError
from shared.schema import StreamEntry

ENTRY = StreamEntry(kind="features", fingerprint="ab", identity={}, container="npy", dtype="float16", row_shape=(8,))


def told(folder: Path) -> tuple[Failure, Failure]:
    """What is stored of a row whose media and captions are not there."""
    folder.mkdir(exist_ok=True)
    (folder / "videos.csv").write_text("video_id,video_path,caption_path\nneu,Meine Videos/nix.mp4,Texte/nix.vtt\n")
    (video,) = read_inputs(folder / "videos.csv")
    unit = make_plan([video], {"s": ENTRY}, {"s": {}}, lambda _: None).units[0].videos[0]
    order = DecodeOrder(unit.path, (), DecodeOptions(), None, (), unit.failure, unit.given)
    begun, started, failure = decode_events(order)
    assert (begun, started) == (Begun(), Started(None))
    captions = CaptionReader(CaptionsConfig(), {}, None, lambda _: None).read(video)
    assert isinstance(failure, Failure)
    assert isinstance(captions, Failure)
    return failure, captions


def test_small_events_travel_with_the_blocks(tmp_path: Path) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    order = DecodeOrder(tmp_path / "a.png", (Sampling(),), DecodeOptions(), None, ("every",))
    packs = [[type(event) for event in pack] for pack in decode_packs(order)]
    assert packs == [[Begun], [Started, Opened, FrameBlock], [Ended]]


def test_the_packs_of_a_bad_file_end_in_its_failure(tmp_path: Path) -> None:
    order = DecodeOrder(tmp_path / "none.mp4", (Sampling(),), DecodeOptions(), None, ("every",))
    packs = [[type(event) for event in pack] for pack in decode_packs(order)]
    assert packs == [[Begun], [Started, Failure]]


def test_a_missing_file_has_the_path_of_the_manifest(tmp_path: Path) -> None:
    media, captions = told(tmp_path / "here")
    assert (media.reason, media.message) == (
        "missing_file",
        "Meine Videos/nix.mp4: cannot be read: No such file or directory; "
        "looked for from the folder of the input manifest",
    )
    assert (captions.reason, captions.message) == (
        "missing_file",
        media.message.replace(media.message[:20], "Texte/nix.vtt"),
    )
    assert told(tmp_path / "elsewhere") == (media, captions), "a store does not depend on where its inputs lay"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "here" / "Meine Videos" / "nix.mp4").mkdir(parents=True)
    media, _ = told(tmp_path / "here")
    assert media.message.startswith("Meine Videos/nix.mp4: not a regular file")
    shutil.rmtree(tmp_path / "here")


def test_a_missing_manifest_is_told_with_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputFileError, match=f"{tmp_path}/data/videos.csv does not exist; relative paths in a config"):
        read_inputs(Path("data/videos.csv"))
