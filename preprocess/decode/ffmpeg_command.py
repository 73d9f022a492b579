"""The command line of the ffmpeg backend: which frames travel, how they are scaled, and what ffmpeg must not do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import ffmpeg
import imageio_ffmpeg
import numpy as np

from preprocess.decode.grid import Needs
from preprocess.decode.media_probe import Probe
from preprocess.decode.options import DecodeOptions
from preprocess.decode.packets import ANCHORED
from shared.errors import EnvironmentLacking

# ffmpeg corrects jumps of the clock in these, and then counts from the start of the stream that is used.
OWN_CLOCK = {"mpeg", "mpegts"}


def executable() -> str:
    """Path of the ffmpeg program. Raises EnvironmentLacking."""
    try:
        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError as error:
        raise EnvironmentLacking(
            f"no ffmpeg program: {error}. Install imageio-ffmpeg, which carries one, or set IMAGEIO_FFMPEG_EXE to one"
        ) from None


def command(
    probe: Probe, size: tuple[int, int], options: DecodeOptions, select: str | None, key_only: bool
) -> list[str]:
    """The argument list. size: (width, height) of the frames on the pipe; select: expression, None lets all through.

    Every shown frame is logged as `showinfo@all`, each one let through as `showinfo@sel`.
    """
    source = {
        "f": probe.demuxer,
        "protocol_whitelist": "file",
        "threads": options.threads,
        "max_pixels": options.max_pixels,
    }
    if key_only:
        source["skip_frame"] = "nokey"
    filters = ["showinfo@all=checksum=0"]
    if select is not None:
        filters += [f"select='{select}'", "showinfo@sel=checksum=0"]
    # The same scaler, with the same default (bicubic), as decord's.
    filters += ["scale={}:{}".format(*size), "format=rgb24"]
    sink = {"map": f"0:{probe.info.stream}", "vf": ",".join(filters), "fps_mode": "passthrough", "f": "rawvideo"}
    general = ["-hide_banner", "-nostdin", "-nostats", "-loglevel", "level+verbose", "-filter_threads", "1"]
    general += ["-timelimit", str(math.ceil(options.timeout_s))]
    if probe.demuxer not in OWN_CLOCK:
        general.append("-copyts")
    stream = ffmpeg.output(ffmpeg.input(f"file:{probe.path}", **source), "pipe:1", **sink).global_args(*general)
    return [str(part) for part in stream.compile(cmd=executable())]


def selection(probe: Probe, needs: Sequence[Needs]) -> str | None:
    """The union of what the samplings need, for the `select` filter; None where all frames may be needed."""
    pts_T = probe.table.pts_T
    if len(pts_T) < 2:
        return None
    gap = float(np.diff(pts_T).max() * probe.time_base) + probe.tolerance
    terms = [one.select(gap, clock(probe)) for one in needs]
    return "+".join(term for term in terms if term) if all(terms) else None


def clock(probe: Probe) -> str:
    """A frame's seconds on the file's own clock, as an expression of the `select` filter."""
    if probe.demuxer in ANCHORED:
        return f"(t-start_t+{probe.info.start:.9f})"
    return f"(t-({zero_of(probe):.9f}))"


def zero_of(probe: Probe) -> float:
    """What the times that ffmpeg logs must be lessened by, in seconds, to be on the file's own clock."""
    return -probe.info.start if probe.demuxer in OWN_CLOCK else probe.zero
