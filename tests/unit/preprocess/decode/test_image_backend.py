import numpy as np
import pytest
from PIL import Image

from preprocess.decode import DecodeFailure, DecodeOptions, Sampling, iterate_clips, open_video, probe


def picture(width=60, height=40) -> Image.Image:
    """Red above, blue below, a green left edge."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, :, 0] = 200
    pixels[height // 2 :, :, 2] = 200
    pixels[:, : width // 6] = (0, 200, 0)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("kind", ["png", "bmp", "webp", "jpg", "gif", "tiff"])
def test_an_image_is_a_video_of_one_frame(kind, tmp_path):
    path = tmp_path / f"image.{kind}"
    settings = {"webp": {"lossless": True}, "jpg": {"quality": 95}}.get(kind, {})
    picture().save(path, **settings)
    samplings = [Sampling(fps=4), Sampling(strategy="dense", fps=5, frames=3), Sampling(strategy="keyframes")]
    with open_video(path, samplings, DecodeOptions()) as video:
        rows = list(iterate_clips(video))
    assert [number for number, _ in rows] == [0, 1, 2]
    assert (video.info.width, video.info.height, video.info.frames) == (60, 40, 1)
    for _, row in rows:
        assert (row.start, row.valid) == (0.0, 1)
        assert row.end == video.info.duration > 0
        error = np.abs(row.frames_THWC[0].astype(int) - np.asarray(picture(), dtype=int)).mean()
        assert error < (4 if kind == "jpg" else 1)


def test_exif_orientation_is_applied(tmp_path):
    path = tmp_path / "image.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # stored turned; to be shown turned clockwise by 90 degrees
    picture().save(path, quality=95, exif=exif)
    (row,) = [clip for _, clip in iterate_clips(open_video(path, [Sampling()], DecodeOptions(), 20))]
    assert row.frames_THWC.shape == (1, 30, 20, 3)
    assert row.frames_THWC[0, 2, 10].argmax() == 1  # the green left edge is now above
    assert row.frames_THWC[0, 20, 3].argmax() == 2  # and what was below is now on the left
    info = probe(path)
    assert (info.width, info.height) == (40, 60)


def test_scaling_down_and_never_up(tmp_path):
    path = tmp_path / "image.png"
    picture().save(path)
    for short_side, shape in ((20, (1, 20, 30, 3)), (400, (1, 40, 60, 3)), (None, (1, 40, 60, 3))):
        (row,) = [clip for _, clip in iterate_clips(open_video(path, [Sampling()], None, short_side))]
        assert row.frames_THWC.shape == shape


def test_sixteen_bit_and_grey_and_transparent_images(tmp_path):
    path = tmp_path / "image.png"
    Image.fromarray(np.full((8, 8), 40000, np.uint16)).save(path)
    (row,) = [clip for _, clip in iterate_clips(open_video(path, [Sampling()]))]
    assert set(row.frames_THWC.ravel()) == {40000 >> 8}
    picture().convert("L").save(path)
    (row,) = [clip for _, clip in iterate_clips(open_video(path, [Sampling()]))]
    assert row.frames_THWC.shape == (1, 40, 60, 3)
    picture().convert("RGBA").save(path)
    (row,) = [clip for _, clip in iterate_clips(open_video(path, [Sampling()]))]
    assert (row.frames_THWC[0] == np.asarray(picture())).all()


def test_an_animation_keeps_its_times(tmp_path):
    path = tmp_path / "animation.webp"
    pictures = [Image.fromarray(np.full((16, 16, 3), 50 * n, np.uint8)) for n in range(4)]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=[100, 300, 100, 500], lossless=True)
    rows = [clip for _, clip in iterate_clips(open_video(path, [Sampling(fps=5)]))]
    assert [row.frames_THWC.max() for row in rows] == [0, 50, 100, 150, 150]
    assert rows[-1].end == pytest.approx(1.0)


def test_a_cut_image_is_truncated(tmp_path):
    path = tmp_path / "image.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(DecodeFailure) as caught:
        list(open_video(path, [Sampling()]))
    assert caught.value.reason == "truncated"


def test_a_bomb_is_refused_by_its_header(tmp_path):
    path = tmp_path / "image.png"
    Image.new("1", (20000, 20000)).save(path)
    with pytest.raises(DecodeFailure) as caught:
        open_video(path, [Sampling()])
    assert caught.value.reason == "too_large"
    with pytest.raises(DecodeFailure) as caught:
        open_video(path, [Sampling()], DecodeOptions(max_pixels=100))
    assert caught.value.reason == "too_large"


def test_bytes_that_only_begin_like_an_image_are_corrupt(tmp_path):
    path = tmp_path / "image.jpg"
    path.write_bytes(b"\xff\xd8\xff\xe0 and no more than that")
    with pytest.raises(DecodeFailure) as caught:
        open_video(path, [Sampling()])
    assert caught.value.reason == "corrupt"


def test_a_damaged_avif_never_ends_in_another_error(tmp_path):
    path = tmp_path / "image.avif"
    Image.new("RGB", (64, 48), (200, 30, 90)).save(path)
    whole, reasons = path.read_bytes(), set()
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            with open_video(path, [Sampling()]) as video:
                list(video)
        except DecodeFailure as error:
            reasons.add(error.reason)
    assert "corrupt" in reasons
