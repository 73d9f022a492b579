"""Backends take over from each other without a frame lost, doubled or out of order."""

from __future__ import annotations

import subprocess
from pathlib import Path

import av
import imageio_ffmpeg
import numpy as np
import pytest

from preprocess.decode import (
    DecodeFailure,
    DecodeOptions,
    Sampling,
    ffmpeg_backend,
    iterate_clips,
    media_source,
    open_video,
    probe,
)
from preprocess.decode.fast import FastFailedError

FRAMES = 30
SAMPLINGS = [Sampling(fps=3), Sampling(strategy="dense", fps=10, frames=4)]


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 seconds, 10 frames a second, a key frame each second, B-frames."""
    path = tmp_path_factory.mktemp("decode") / "video.mp4"
    source = ["-f", "lavfi", "-i", "testsrc2=s=96x64:r=10:d=3"]
    encode([*source, "-c:v", "libx264", "-g", "10", "-bf", "2", "-pix_fmt", "yuv420p"], path)
    return path


def encode(arguments: list[str | bytes], path: Path) -> None:
    subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *arguments, str(path)], check=True)


def rows_of(path: Path, samplings: list[Sampling], **options: object):
    with open_video(path, samplings, DecodeOptions.model_validate(options)) as reader:
        rows = list(iterate_clips(reader))
    return reader.info, rows


def assert_same(rows, others) -> None:
    assert len(rows) == len(others) > 0
    for (number, one), (other_number, other) in zip(rows, others, strict=True):
        assert number == other_number
        assert (one.start, one.end, one.valid) == (other.start, other.end, other.valid)
        assert one.index_T.tolist() == other.index_T.tolist()
        assert np.abs(one.frames_THWC.astype(int) - other.frames_THWC).mean() < 1


@pytest.mark.parametrize("backend", ["decord", "pyav"])
def test_ffmpeg_goes_on_where_a_fast_backend_fails(video, monkeypatch, backend):
    _, whole = rows_of(video, SAMPLINGS, backend="ffmpeg")

    class Failing(media_source.FAST[backend]):
        def __iter__(self):
            for frame in super().__iter__():
                if frame.index > 12:
                    raise FastFailedError("planted")
                yield frame

    monkeypatch.setitem(media_source.FAST, backend, Failing)
    info, rows = rows_of(video, SAMPLINGS, backend=backend)
    assert (info.backend, info.why, info.frames) == (f"{backend}+ffmpeg", "planted", FRAMES)
    assert_same(rows, whole)
    with open_video(video, [Sampling(fps=10)], DecodeOptions(backend=backend, block_bytes=1)) as reader:
        assert [int(block.index_T[0]) for block in reader] == list(range(FRAMES))


def test_decord_is_not_believed_when_it_counts_other_frames(video, monkeypatch):
    monkeypatch.setattr("decord.VideoReader.__len__", lambda self: FRAMES + 1)
    info, _ = rows_of(video, SAMPLINGS, backend="decord")
    assert info.backend == "ffmpeg"
    assert "31 frames" in info.why


def test_decord_is_not_believed_when_its_times_differ(video, monkeypatch):
    monkeypatch.setattr(
        "decord.VideoReader.get_frame_timestamp", lambda self, which: np.zeros((len(which), 2), np.float32)
    )
    info, _ = rows_of(video, SAMPLINGS, backend="decord")
    assert info.backend == "ffmpeg"
    assert "times" in info.why


def test_a_selection_that_lets_too_little_through_is_noticed(video, monkeypatch):
    _, whole = rows_of(video, SAMPLINGS, backend="ffmpeg")
    narrow = "eq(n,0)+eq(n,3)+gte(n,20)"
    monkeypatch.setattr(ffmpeg_backend, "selection", lambda probe, needs: narrow)
    info, rows = rows_of(video, SAMPLINGS, backend="ffmpeg")
    assert info.frames == FRAMES
    assert_same(rows, whole)


@pytest.mark.parametrize("sampling", [Sampling(fps=3), SAMPLINGS[1], Sampling(strategy="keyframes")])
def test_one_pass_is_enough_and_lets_few_frames_through(video, sampling, monkeypatch):
    passes = []

    class Counted(ffmpeg_backend.FfmpegFrames):
        def _receive(self, event):
            passes[-1] += 1
            super()._receive(event)

        def __enter__(self):
            passes.append(0)
            return super().__enter__()

    monkeypatch.setattr(media_source, "FfmpegFrames", Counted)
    _, rows = rows_of(video, [sampling], backend="ffmpeg")
    needed = len({index for _, clip in rows for index in clip.index_T})
    assert len(passes) == 1
    assert needed <= passes[0] <= 2 * needed


def test_uniform_without_a_trusted_table_learns_the_end_first(video, tmp_path):
    avi = tmp_path / "video.avi"
    encode(["-i", str(video), "-c", "copy"], avi)
    sampling = [Sampling(strategy="uniform", frames=6)]
    info, rows = rows_of(avi, sampling)
    assert info.duration == pytest.approx(3.0)
    assert [clip.index_T[0] for _, clip in rows] == [2, 7, 12, 17, 22, 27]


def test_the_backend_is_chosen_by_codec_and_sampling(video, tmp_path):
    dense = Sampling(strategy="dense", fps=10, frames=4)
    assert rows_of(video, [Sampling(fps=1)])[0].backend == "pyav"
    assert rows_of(video, SAMPLINGS)[0].backend == "pyav"
    assert rows_of(video, [Sampling(strategy="keyframes")], backend="decord")[0].backend == "ffmpeg"
    other = tmp_path / "other.webm"
    encode(["-i", str(video), "-c:v", "libvpx-vp9", "-deadline", "realtime"], other)
    assert rows_of(other, [Sampling(fps=1)])[0].backend == "decord"
    assert rows_of(other, [dense])[0].backend == "pyav"
    assert rows_of(other, [Sampling(fps=1), dense])[0].backend == "pyav"


def test_running_over_the_processor_time_is_a_timeout(video, monkeypatch):
    """ffmpeg says so itself when the limit on its processor time strikes."""
    monkeypatch.setattr(ffmpeg_backend.Outcome, "out_of_time", property(lambda self: True, lambda self, value: None))
    with pytest.raises(DecodeFailure) as caught:
        rows_of(video, SAMPLINGS, backend="ffmpeg")
    assert caught.value.reason == "timeout"


def test_a_stream_longer_than_it_announces_is_stopped(video, monkeypatch):
    """The packets may lie: what is shown is counted too."""
    reader = open_video(video, SAMPLINGS, DecodeOptions(backend="ffmpeg", max_frames=FRAMES))
    monkeypatch.setattr(reader._source, "_options", DecodeOptions(backend="ffmpeg", max_frames=10))
    with pytest.raises(DecodeFailure) as caught:
        list(reader)
    assert caught.value.reason == "too_large"


def test_probe_decodes_nothing_and_knows_the_facts(video, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    info = probe(video)
    assert (info.width, info.height, info.frames, info.codec, info.container) == (96, 64, FRAMES, "h264", "mov")
    assert info.duration == pytest.approx(3.0)


def test_titles_need_not_be_utf8(video, tmp_path):
    path = tmp_path / "title.mp4"
    encode(["-i", str(video), "-c", "copy", "-metadata", b"title=caf\xe9"], path)
    assert len(rows_of(path, [Sampling(fps=1)])[1]) == 3


def test_uniform_over_a_single_frame_of_an_untrusted_table_ends(video, tmp_path):
    path = tmp_path / "one.avi"
    encode(["-i", str(video), "-frames:v", "1", "-c:v", "mpeg4"], path)
    rows = rows_of(path, [Sampling(strategy="uniform", frames=4)])[1]
    assert [clip.index_T.tolist() for _, clip in rows] == [[0]] * 4


@pytest.mark.parametrize("backend", ["auto", "pyav", "ffmpeg"])
def test_frames_that_an_edit_list_leaves_out_are_not_missing(video, tmp_path, backend):
    path = tmp_path / "later.mp4"
    encode(["-i", str(video), "-c", "copy", "-avoid_negative_ts", "disabled", "-output_ts_offset", "-2"], path)
    info, rows = rows_of(path, [Sampling(fps=10)], backend=backend)
    assert [clip.index_T[0] for _, clip in rows] == list(range(10))
    assert info.duration == pytest.approx(1.0)


@pytest.mark.parametrize("container", ["mp4", "mkv"])
def test_a_picture_turned_by_an_odd_angle_keeps_its_times(video, tmp_path, container):
    path = tmp_path / f"turned.{container}"
    encode(["-display_rotation", "45", "-i", str(video), "-c", "copy"], path)
    info, rows = rows_of(path, [Sampling(fps=1)])
    assert info.duration == pytest.approx(3.0)
    assert [clip.index_T[0] for _, clip in rows] == [0, 10, 20]


def test_a_matroska_file_whose_rest_cannot_be_found_is_no_whole_one(video, tmp_path):
    whole = tmp_path / "whole.mkv"
    encode(["-f", "lavfi", "-i", "testsrc2=s=160x120:r=10:d=6", "-c:v", "libx264", "-g", "20", "-pix_fmt", "yuv420p"],
           whole)  # fmt: skip
    data = bytearray(whole.read_bytes())
    middle = len(data) // 2
    data[middle : middle + len(data) // 4] = bytes(len(data) // 4)
    damaged = tmp_path / "damaged.mkv"
    damaged.write_bytes(data)
    assert len(rows_of(whole, [Sampling(fps=1)])[1]) == 6
    with pytest.raises(DecodeFailure) as caught:
        rows_of(damaged, [Sampling(fps=1)])
    assert caught.value.reason == "corrupt"


def test_sound_that_outlasts_the_picture_is_no_damage(video, tmp_path):
    path = tmp_path / "sound.mkv"
    encode(["-i", str(video), "-f", "lavfi", "-t", "8", "-i", "anullsrc=r=8000:cl=mono", "-c:v", "copy"], path)
    info, rows = rows_of(path, [Sampling(fps=1)])
    assert (info.backend, len(rows)) == ("pyav", 3)


def test_a_late_clock_is_no_length(video, tmp_path):
    path = tmp_path / "late.mkv"
    encode(["-itsoffset", "100000", "-i", str(video), "-c", "copy", "-copyts"], path)
    info, rows = rows_of(path, [Sampling(fps=1)])
    assert (info.backend, len(rows)) == ("pyav", 3)
    assert info.duration == pytest.approx(3.0)


def remux(source: Path, target: Path, change) -> None:
    """Copy the packets for which `change` says so, after it may have changed them."""
    with av.open(str(source)) as reading, av.open(str(target), "w") as writing:
        stream = reading.streams.video[0]
        copy = writing.add_stream_from_template(stream)
        for packet in reading.demux(stream):
            if packet.size and change(packet):
                packet.stream = copy
                writing.mux(packet)


def test_times_in_the_order_of_storage_are_not_believed(video, tmp_path):
    """B-frames are stored after what they are shown before: then times that only go up were made up."""

    def shown_as_stored(packet) -> bool:
        packet.pts = packet.dts
        return True

    path = tmp_path / "video.mkv"
    remux(video, path, shown_as_stored)
    info, rows = rows_of(path, [Sampling(fps=2)])
    assert (info.backend, "another order" in info.why) == ("ffmpeg", True)
    assert_same(rows, rows_of(path, [Sampling(fps=2)], backend="ffmpeg")[1])


def test_where_a_reference_is_missing_ffmpeg_decides_what_is_shown(video, tmp_path):
    """What PyAV leaves out undecoded must not change what a decoder makes up for the lost frame."""
    seen: list[bool] = []

    def not_the_fifth(packet) -> bool:
        seen.append(bool(bytes(packet)[4] & 0x60) and not packet.is_keyframe)
        return not (seen[-1] and sum(seen) == 5)

    path = tmp_path / "video.mp4"
    remux(video, path, not_the_fifth)
    info, rows = rows_of(path, [Sampling(fps=2)])
    assert (info.backend, info.why) == ("ffmpeg", "pictures that others refer to are missing in 1 places")
    others = rows_of(path, [Sampling(fps=2)], backend="ffmpeg")[1]
    for (_, one), (_, other) in zip(rows, others, strict=True):
        assert np.array_equal(one.frames_THWC, other.frames_THWC)
