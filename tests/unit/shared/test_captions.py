"""Captions as found come back byte for byte."""

from __future__ import annotations

import gzip
import json

import pytest

from shared.captions import KeptCaptions, KeptTrack, read_caption_index, read_caption_shard, write_caption_shard
from shared.errors import DamageFound
from shared.schema import FailureRecord, FileEntry

ODD = {
    "plain": b"WEBVTT\n\n00:00.000 --> 00:01.000\nhello\n",
    "empty": b"",
    "bom": b"\xef\xbb\xbf1\r\n00:00:00,000 --> 00:00:01,000\r\nh\xc3\xa9\r\n",
    "latin1": "Küche".encode("latin1"),
    "half_a_character": "é".encode()[:1],
    "surrogate": b"\xed\xa0\x80",
    "utf16": "text".encode("utf-16"),
    "controls": bytes(range(32)) + b"\x7f\x85\xc2\x85\xe2\x80\xa8\xe2\x80\xa9",
    "every_byte": bytes(range(256)),
}
VIDEOS = [
    KeptCaptions("a", "train", {"source": "tv", "länge": "1"}, tuple(KeptTrack(f"{n}.vtt", d) for n, d in ODD.items())),
    KeptCaptions("b", None, {}, ()),
    KeptCaptions("c", "test", {}, (), FailureRecord(id="c", reason="missing", stage="captions", message="no file")),
]


@pytest.fixture
def store(tmp_path):
    """A folder with one caption shard as a commit would place it, and its name."""
    done = write_caption_shard(tmp_path / "scratch", 7, VIDEOS)
    for file in done.files:
        target = tmp_path / "store" / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        file.scratch.rename(target)
    return tmp_path / "store", done.ref.name


def test_everything_comes_back_byte_for_byte(store):
    assert list(read_caption_shard(*store)) == VIDEOS


def test_the_index_says_what_is_there_without_the_texts(store):
    records = read_caption_index(*store).videos
    assert [(r.id, r.split, len(r.tracks)) for r in records] == [
        ("a", "train", len(ODD)),
        ("b", None, 0),
        ("c", "test", 0),
    ]
    assert [track.bytes for track in records[0].tracks] == [len(data) for data in ODD.values()]


def test_plain_gzip_and_json_read_them(store):
    path, name = store
    lines = gzip.decompress((path / "captions" / f"{name}.jsonl.gz").read_bytes()).split(b"\n")
    assert len(lines) == 4
    tracks = {track["name"]: track for track in json.loads(lines[0])["tracks"]}
    assert tracks["bom.vtt"]["text"].startswith("\ufeff1\r\n")
    assert "base64" in tracks["latin1.vtt"]


def test_same_captions_same_bytes(tmp_path):
    written = [write_caption_shard(tmp_path / folder, 0, VIDEOS) for folder in ("a", "b")]
    assert written[0].ref == written[1].ref
    for one, other in zip(written[0].files, written[1].files, strict=True):
        assert one.scratch.read_bytes() == other.scratch.read_bytes()
        assert (one.path, one.entry) == (other.path, other.entry)


def rewrite(path, lines):
    path.write_bytes(gzip.compress(b"".join(lines)))


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:-1],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [lines[1], lines[0], lines[2]],
        lambda lines: [lines[0].replace(b"hello", b"jello"), *lines[1:]],
        lambda lines: [lines[0].replace(b'"plain.vtt"', b'"plane.vtt"'), *lines[1:]],
        lambda lines: [b"[]\n", *lines[1:]],
        lambda lines: [b'{"id": "a", "tracks": ["x"]}\n', *lines[1:]],
        lambda lines: [b'{"id": "a"}\n', *lines[1:]],
        lambda lines: [b"\xff\n", *lines[1:]],
    ],
)
def test_texts_that_are_not_what_the_index_says_are_damage(store, change):
    path, name = store
    file = path / "captions" / f"{name}.jsonl.gz"
    rewrite(file, change(gzip.decompress(file.read_bytes()).splitlines(keepends=True)))
    with pytest.raises(DamageFound, match=name):
        list(read_caption_shard(path, name))


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_cut_file_is_damage(store, kept):
    path, name = store
    file = path / "captions" / f"{name}.jsonl.gz"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(DamageFound, match=name):
        list(read_caption_shard(path, name))


def test_missing_files_and_a_bad_index_are_damage(store):
    path, name = store
    (path / "captions" / f"{name}.jsonl.gz").unlink()
    with pytest.raises(DamageFound, match=r"jsonl\.gz"):
        list(read_caption_shard(path, name))
    index = path / "captions" / f"{name}.json"
    index.write_text('{"videos": [{"id": 3}]}')
    with pytest.raises(
        DamageFound, match=r"not a caption index: videos\.0\.id: .* \(and 3 more\); run `verify`"
    ) as caught:
        read_caption_index(path, name)
    assert "\n" not in str(caught.value)
    with pytest.raises(DamageFound, match="its content changed"):
        read_caption_index(path, name, FileEntry(bytes=24, xxh3="ab"))
    index.unlink()
    with pytest.raises(DamageFound, match="is missing"):
        read_caption_index(path, name)
