"""Whether ffmpeg complains of a file whose damage decoders make up for, and tell of nowhere but in their log.

A pass of its own, which logs errors and nothing else: in a log of many threads a message may lose the prefix that says
whose it is and how grave.
"""

from __future__ import annotations

import re
import subprocess

from preprocess.decode.ffmpeg_command import executable
from preprocess.decode.media_probe import TELL_IN_LOG, Probe
from preprocess.decode.options import DecodeOptions
from preprocess.decode.video import fail

# Ogg has checksums, which its demuxer looks at and skips what fails.
CHECKED_CONTAINERS = {"ogg"}
# Of demuxers, and of decoders whose pictures stand alone. Other decoders also complain of whole files.
COMPLAINT = re.compile(rb"^\[(?:in#0/|(?:ogg|gif|mjpeg) @ )[^]]*\] \[(?:error|fatal)\] (.*)", re.MULTILINE)


def complaint(probe: Probe, options: DecodeOptions) -> str:
    """What ffmpeg says first of what is wrong; empty where nothing is, or where damage is told in other ways.

    Raises DecodeFailure (`timeout`), EnvironmentLacking.
    """
    if probe.info.codec not in TELL_IN_LOG and probe.demuxer not in CHECKED_CONTAINERS:
        return ""
    source = ["-f", probe.demuxer, "-protocol_whitelist", "file", "-max_pixels", str(options.max_pixels)]
    source += ["-i", f"file:{probe.path}"]
    general = ["-hide_banner", "-nostdin", "-nostats", "-loglevel", "level+error"]
    sink = ["-map", f"0:{probe.info.stream}", "-f", "null", "-"]
    command = [executable(), *general, "-threads", "1", *source, *sink]
    try:
        done = subprocess.run(command, capture_output=True, timeout=options.timeout_s, check=False)
    except subprocess.TimeoutExpired:
        fail("timeout", f"{probe.path.name}: over {options.timeout_s:g} s, the limit timeout_s")
    found = COMPLAINT.search(done.stderr)
    return found[1].decode(errors="replace").strip() if found else ""
