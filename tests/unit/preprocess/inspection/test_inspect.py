"""Looking into a store: the list, the terminal, the page."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from preprocess.cli import app
from preprocess.inspection.page import draw, page, write_page
from preprocess.inspection.tables import rows_of_video
from preprocess.inspection.terminal import bar, row_bar, timeline, video_table
from preprocess.inspection.view import StreamView, choose_set, list_videos, view_video
from preprocess.takedown import take_down
from shared.captions import KeptCaptions, KeptTrack, write_caption_shard
from shared.errors import RequestError, StoreError
from shared.manifest_set import ManifestSet
from shared.manifest_writer import CAPTION_COLUMNS, ManifestSetWriter
from shared.store import open_store, open_writer

NASTY = "<script>alert('1')</script> & [bold]x[/bold]"


@pytest.fixture(scope="module")
def store(small_store, tmp_path_factory):
    """A hand-made store with pictures; one video's captions are kept as found, with texts that could do harm."""
    path = small_store(tmp_path_factory.mktemp("inspect") / "store", splits={"train": 3, "val": 2}, thumbs=True)
    vtt = f"WEBVTT\n\n00:00.000 --> 00:02.000\n{NASTY}\n\n00:02.000 --> 00:04.000\n<c>second</c>\n\nno cue\n"
    tracks = (KeptTrack("a.vtt", vtt.encode()), KeptTrack("b.vtt", b"x"))
    kept = [
        KeptCaptions("train000", "train", {"title": NASTY}, tracks),
        KeptCaptions("train001", None, {}, ()),
    ]
    with open_writer(path) as writer:
        shard = write_caption_shard(writer.scratch, 0, kept)
        writer.commit(shard.files, captions=(shard.ref,))
    return path


def shown(renderable, width=120):
    with Path("/dev/null").open("w") as nowhere:
        console = Console(width=width, record=True, file=nowhere)
        console.print(renderable)
    return console.export_text()


def view(store, video_id):
    opened = open_store(store)
    return view_video(opened, video_id, choose_set(opened, None))


def test_what_is_found_of_a_video(store):
    found = view(store, "train000")
    assert (found.duration, found.split, found.set_name, found.missing) == (15.0, "train", "default", "")
    assert [(stream.name, len(stream.spans)) for stream in found.streams] == [("default", 15), ("thumbs", 15)]
    assert [cue.text for cue in found.tracks[0].cues] == [NASTY, "<c>second</c>"]
    assert found.tracks[1].failure.startswith("not_captions")
    assert [(s.start, s.end, s.text) for s in found.captions] == [
        (0.0, 2.0, "thing 0 of train000, take 0.0"),
        (5.0, 7.0, "thing 0 of train000, take 1.0"),
        (5.0, 7.0, "thing 0 of train000, take 1.1"),
        *((10.0, 12.0, f"thing 0 of train000, take 2.{k}") for k in range(3)),
    ]
    assert [(w.start, w.end, w.note) for w in found.windows] == [
        (0.0, 2.0, "rows 0 to 1"), (5.0, 8.0, "rows 5 to 7"), (10.0, 14.0, "rows 10 to 13")
    ]  # fmt: skip
    assert found.windows[1].text == "thing 0 of train000, take 1.0\nthing 0 of train000, take 1.1"
    assert len(found.pictures) == 15
    assert all(picture.text.startswith("data:image/jpeg;base64,") for picture in found.pictures)


def test_every_video_has_its_own_captions(store):
    """Numbers of captions count through the set: a slip would show another video's."""
    opened = open_store(store)
    manifest = choose_set(opened, None)
    for video_id in manifest.video_ids:
        found = view_video(opened, video_id, manifest)
        assert all(f" of {video_id}," in span.text for span in found.captions)
        assert all(f" of {video_id}," in line for window in found.windows for line in window.text.split("\n"))
        assert len(found.windows) == 3


def test_unknown_and_removed_videos_are_refused(store, tmp_path):
    with pytest.raises(StoreError, match="no video 'nobody'"):
        view(store, "nobody")
    mine = shutil.copytree(store, tmp_path / "store")
    take_down(mine, ["train001"])
    with pytest.raises(StoreError, match="was removed"):
        view(mine, "train001")
    lines, total, removed = list_videos(open_store(mine), None, 10)
    assert (total, removed) == (4, 1)
    assert [(line.video_id, line.rows) for line in lines][1] == ("train001", ("removed", "removed"))


def test_the_list(store):
    opened = open_store(store)
    lines, total, _ = list_videos(opened, choose_set(opened, None), 4)
    assert (total, [line.video_id for line in lines]) == (5, ["train000", "train001", "train002", "val000"])
    assert (lines[3].seconds, lines[3].rows, lines[3].windows, lines[3].split) == (15.0, ("15", "15"), "3", "val")
    text = shown(video_table(lines, list(opened.root.streams), "default"))
    assert re.search(r"val000 +│ 15\.0 +│ 15 +│ 15 +│ \d+ +│ 3 +│ val", text)


def test_the_list_says_why_the_set_lacks_a_video(store, tmp_path):
    writer = ManifestSetWriter(tmp_path / "set")
    writer.add_captions("train000", [0.0], [1.0], ["words"], [np.array([1])])
    writer.add_video("train000", "train", 15.0, 15)
    writer.add_failure("train001", "split", "near_duplicate", "its rows are those of val000")
    writer.finish(name="s", stream="s", stream_fingerprint="ab", config={}, tokenizer={"pad_id": 0}, report={})
    lines, *_ = list_videos(open_store(store), ManifestSet(tmp_path, "set"), 3)
    assert [line.missing for line in lines] == ["", "near_duplicate", "made without it"]
    text = shown(video_table(lines, ["default", "thumbs"], "s"))
    assert "not in s, why" in text
    assert re.search(r"train001 .*│ near_duplicate", text)
    assert {line.missing for line in list_videos(open_store(store), None, 3)[0]} == {""}


def test_a_narrow_terminal_folds_ids(store):
    lines, *_ = list_videos(open_store(store), None, 1)
    text = shown(video_table([replace(lines[0], video_id="0123456789" * 9)], ["default", "thumbs"], ""), 60)
    assert "…" not in text
    assert "".join(re.findall(r"^│ (\d+) ", text, re.MULTILINE)) == "0123456789" * 9


def test_without_a_terminal_nothing_is_cut(store):
    for arguments, whole in (((), "train000"), (("train000",), "thing 0 of train000, take 0.0")):
        done = CliRunner(env={"COLUMNS": "20"}).invoke(app, ["inspect", str(store), *arguments])
        assert done.exit_code == 0
        assert any(whole in line for line in done.output.splitlines())


def test_the_candidates_of_a_window_are_told_apart(store):
    text = shown(timeline(view(store, "train000")), 90)
    assert [len(re.findall(rf"- thing 0 of train000, take {n}", text)) for n in range(3)] == [1, 2, 3]
    wrapped = shown(timeline(view(store, "train000")), 76).split("Windows with")[1]
    assert wrapped.count("- thing") == 6


def test_the_terminal_shows_texts_as_they_are(store):
    text = shown(timeline(view(store, "train000")), 200)
    assert text.count(NASTY) == 2  # title and cue: no markup is lost
    assert "rows 5 to 7" in text
    assert "b.vtt (not_captions" in text
    assert "a.vtt (2 cues, 1 skipped)" in text


def test_bars():
    assert bar(0, 5, 10, 10) == "█████·····"
    assert bar(9.99, 10, 10, 10) == "·········█"
    assert bar(12, 15, 10, 10) == "·········█"
    assert bar(-3, 0, 10, 10) == "█·········"
    assert bar(1, 2, 0, 4) == "····"
    assert row_bar(StreamView("s", np.array([[0, 5], [5, 10]], float)), 10, 10) == "▌████▌████"
    assert row_bar(StreamView("s", np.empty((0, 2))), 10, 4) == "····"


def test_the_page_is_safe_and_whole(store):
    found = page(view(store, "train000"))
    assert NASTY not in found
    assert "&lt;script&gt;alert" in found
    assert not re.search(r'(src|href)="(?!data:)|url\(|@import|<script', found)
    assert "default-src 'none'" in found
    assert found.count("<image ") == len(draw(view(store, "train000")).pictures) == 8
    assert "prefers-color-scheme: dark" in found
    assert "width=device-width" in found


def test_boxes_stand_at_their_time_and_do_not_cover_each_other(store):
    drawing = draw(view(store, "train000"))
    lanes = {lane.kind: lane for lane in drawing.lanes}
    clean = lanes["clean"]
    assert [level for _, level in clean.boxes] == [0, 0, 1, 0, 1, 2]
    assert clean.boxes[1][0].x == pytest.approx(5 / 15 * (drawing.width - 72))
    assert clean.boxes[1][0].width == pytest.approx(2 / 15 * (drawing.width - 72))
    assert all(b.x - a.x >= a.width for a, b in pairwise(drawing.pictures))
    tops = [lane.y for lane in drawing.lanes]
    assert tops == sorted(set(tops))
    assert drawing.height > tops[-1]


def test_without_captions_or_a_set(store):
    opened = open_store(store)
    bare = view_video(opened, "train001", None)
    assert bare.missing.startswith("the store has no manifest set that fits")
    assert bare.missing in page(bare)
    assert "Captions as found: none" in shown(timeline(bare))
    assert page(view(store, "train002"))


def test_rows_are_found_where_a_caption_looks_like_one(tmp_path):
    """A caption with a line that reads like the first field of another video, ids that need quotes, several parts."""
    ids = ["a", 'say "b", c', "line"]
    writer = ManifestSetWriter(tmp_path / "set")
    for video_id in ids:
        texts = [f"x\na,1,2,no row of {video_id}\nline,0,0,neither,", f"of {video_id}"]
        writer.add_captions(video_id, [0.0, 1.0], [1.0, 2.0], texts, [np.array([1]), np.array([2])])
        writer.add_video(video_id, "train", 2.0, 2)
    writer.finish(
        name="s", stream="s", stream_fingerprint="ab", config={}, tokenizer={"pad_id": 0}, report={}
    )  # fmt: skip
    manifest = ManifestSet(tmp_path, "set")
    for video_id in ids:
        rows = rows_of_video(manifest, "captions", CAPTION_COLUMNS, video_id, 2)
        assert [row["text"].endswith((f"of {video_id}", "neither,")) for row in rows] == [True, True]
        assert {row["video_id"] for row in rows} == {video_id}


def test_rows_that_go_on_in_the_next_part(tmp_path, monkeypatch):
    from shared import manifest_writer

    monkeypatch.setattr(manifest_writer, "PART_ROWS", 3)
    writer = ManifestSetWriter(tmp_path / "set")
    for video_id in ("a", "b", "c"):
        writer.add_captions(video_id, [0.0, 1.0], [1.0, 2.0], [f"{video_id}0", f"{video_id}1"], [np.array([1])] * 2)
        writer.add_video(video_id, "train", 2.0, 2)
    writer.finish(name="s", stream="s", stream_fingerprint="ab", config={}, tokenizer={"pad_id": 0}, report={})
    manifest = ManifestSet(tmp_path, "set")
    assert len(manifest.info.part_files("captions")) == 2
    for video_id in ("a", "b", "c"):
        rows = rows_of_video(manifest, "captions", CAPTION_COLUMNS, video_id, 2)
        assert [row["text"] for row in rows] == [f"{video_id}0", f"{video_id}1"]


def test_the_command(store, tmp_path):
    listed = CliRunner().invoke(app, ["inspect", str(store), "--limit", "2"])
    assert listed.exit_code == 0
    assert "5 videos; the first 2 of all by id" in listed.output
    drawn = CliRunner().invoke(app, ["inspect", str(store), "val000", "--html", str(tmp_path / "v.html")])
    assert drawn.exit_code == 0, drawn.exception
    assert "<title>Video val000</title>" in (tmp_path / "v.html").read_text()
    assert CliRunner().invoke(app, ["inspect", str(store), "val000"]).exit_code == 0
    wrong = CliRunner().invoke(app, ["inspect", str(store), "--html", str(tmp_path / "v.html")])
    assert isinstance(wrong.exception, RequestError)
    for path, message in (
        (store / "features" / "v.html", "inside the store"),
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "v.html", "does not exist"),
    ):
        with pytest.raises(RequestError, match=message):
            write_page(path, lambda: pytest.fail("read before the file was refused"))
