"""A container that is broken inside is told from a whole one, by its structure alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import imageio_ffmpeg
import pytest

from preprocess.decode import DecodeFailure, DecodeOptions, Sampling, iterate_clips, open_video
from preprocess.decode.sniff import sniff
from preprocess.decode.structure import damage_of, element_head, vint_length

# A file of each kind: its ending, and how it is encoded.
KINDS = {
    "matroska": ("mkv", ["-c:v", "libx264", "-g", "10", "-pix_fmt", "yuv420p"]),
    "vp9 in clusters": ("webm", ["-c:v", "libvpx-vp9", "-g", "10", "-deadline", "realtime", "-cpu-used", "8"]),
    "live": ("webm", ["-c:v", "libvpx", "-g", "10", "-live", "1", "-deadline", "realtime"]),
    "gif": ("gif", []),
}
# These tell of it elsewhere: AVI in its index, Ogg in its checksums.
MORE = {
    "avi": ("avi", ["-c:v", "mjpeg"]),
    "ogg": ("ogv", ["-c:v", "libtheora"]),
}


def encode(folder: Path, ending: str, options: list[str]) -> Path:
    path = folder / f"video.{ending}"
    source = ["-f", "lavfi", "-i", "testsrc2=s=64x48:r=10:d=8"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *source, "-threads", "1", *options, str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="module", params=KINDS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(tmp_path_factory.mktemp(request.param), *KINDS[request.param])


@pytest.fixture(scope="module", params=KINDS | MORE)
def any_kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(tmp_path_factory.mktemp("structure"), *(KINDS | MORE)[request.param])


def changed(path: Path, folder: Path, first: int, new: bytes, gone: int) -> Path:
    data = path.read_bytes()
    made = folder / path.name
    made.write_bytes(data[:first] + new + data[first + gone :])
    return made


def decode(path: Path, **options: bool) -> tuple[int, bool]:
    """(rows, partial)"""
    with open_video(path, [Sampling(fps=10)], DecodeOptions.model_validate(options)) as video:
        rows = len(list(iterate_clips(video)))
    return rows, video.info.partial


def test_a_whole_file(whole, tmp_path):
    demuxer = sniff(whole).demuxer
    assert damage_of(whole, demuxer) == ""
    if demuxer == "gif":
        without_trailer = changed(whole, tmp_path, whole.stat().st_size - 1, b"", 1)
        assert damage_of(without_trailer, demuxer) == ""


@pytest.mark.parametrize("junk", [b"\0" * 3000, b"junk" * 1000, b"\x00\x00\x00\x20ftypisom"])
def test_what_is_appended_to_a_whole_file_does_not_matter(whole, tmp_path, junk):
    size = whole.stat().st_size
    longer = changed(whole, tmp_path, size, junk, 0)
    # What has no length goes on to the end of the file; it may be padded.
    lost = whole.parent.name.startswith("live") and any(junk)
    assert damage_of(longer, sniff(whole).demuxer) == (f"its structure breaks at byte {size}" if lost else "")


def test_clusters_without_a_length_in_a_segment_with_one(tmp_path):
    whole = encode(tmp_path, *KINDS["matroska"])
    data = bytearray(whole.read_bytes())
    at = data.find(bytes.fromhex("1f43b675"))
    while at >= 0:
        length = vint_length(data[at + 4 : at + 5])
        data[at + 4 : at + 4 + length] = bytes([(1 << 9 - length) - 1]) + b"\xff" * (length - 1)
        at = data.find(bytes.fromhex("1f43b675"), at + 4)
    for tail in (b"", b"\xec\x88" + bytes(8), b"anything"):
        whole.write_bytes(data + tail)
        assert damage_of(whole, "matroska") == ""
    whole.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
    assert damage_of(whole, "matroska") != "", "zeros where a segment says that it goes on are no padding"


def test_a_gif_may_be_padded(tmp_path):
    whole = encode(tmp_path, *KINDS["gif"])
    for tail in (b"\0\0\0\0", b"\0;"):
        padded = changed(whole, tmp_path, whole.stat().st_size - 1, tail, 1)
        if any(tail):
            assert damage_of(padded, "gif").startswith("its structure breaks")
        else:
            assert damage_of(padded, "gif") == ""
            assert decode(padded) == (80, False)


def test_a_complaint_of_the_decoder_is_never_missed(tmp_path):
    """It comes from another thread than the times of the frames, and may end up within a line of theirs."""
    whole = encode(tmp_path, *KINDS["gif"])
    data = whole.read_bytes()
    damaged = tmp_path / "damaged.gif"
    for size in range(4, 40):
        damaged.write_bytes(data[: len(data) // 2] + data[len(data) // 2 + size :])
        if damage_of(damaged, "gif") == "":
            break
    assert damage_of(damaged, "gif") == "", "the structure hides it"
    for _ in range(8):
        with pytest.raises(DecodeFailure, match="LZW decode failed"):
            decode(damaged)


@pytest.mark.parametrize("place", [0.2, 0.4, 0.6, 0.8])
@pytest.mark.parametrize("kind", ["zeros", "gone"])
def test_damage_over_several_parts_is_seen_and_named(any_kind, tmp_path, place, kind):
    """A sixth of the file: more than one frame's data."""
    size = any_kind.stat().st_size
    first, long = int(size * place), size // 6
    damaged = changed(any_kind, tmp_path, first, b"" if kind == "gone" else bytes(long), long)
    with pytest.raises(DecodeFailure) as failure:
        decode(damaged)
    assert failure.value.reason in ("corrupt", "truncated")
    rows, partial = decode(damaged, keep_partial=True)
    assert 0 < rows <= 80
    assert partial


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"\x1a\x45\xdf\xa3\x93", (0x1A45DFA3, 5, 19)),
        (b"\x1f\x43\xb6\x75\x01\xff\xff\xff\xff\xff\xff\xff", (0x1F43B675, 12, None)),
        (b"\xa3\x40\x02", (0xA3, 3, 2)),
        (b"\xa3\xff", (0xA3, 2, None)),
        (b"\xa3", None),
        (b"\x00\x82", None),
        (b"\x08\x82\x82\x82\x82\x82\x82", None),  # an ID of 5 bytes
        (b"\xa3\x00", None),
        (b"", None),
    ],
)
def test_heads_of_elements(head: bytes, expected: tuple[int, int, int | None] | None) -> None:
    assert element_head(head) == expected
