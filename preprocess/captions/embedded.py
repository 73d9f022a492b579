"""Subtitle streams inside a media file: mov_text (3GPP timed text), SubRip, WebVTT, ASS/SSA, plain text.

Kept as JSON, `{"codec", "language", "title", "stream", "start", "end", "text"}`, whose texts are those of the packets,
tags and overrides included: `json_track` reads it. Times are seconds of the file's own clock, as those of rows are.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.error import FFmpegError

from preprocess.captions.languages import primary_language
from preprocess.decode.media_probe import checked_path, open_container
from preprocess.decode.options import DecodeOptions
from preprocess.decode.sniff import sniff
from preprocess.decode.video import DecodeFailure
from shared.captions import KeptTrack
from shared.errors import Failure

TEXT_CODECS = ("mov_text", "subrip", "webvtt", "ass", "text")
# ASS in Matroska: ReadOrder, Layer, Style, Name, MarginL, MarginR, MarginV, Effect, and the text with its commas.
_ASS_FIELDS = 8


def embedded_track(path: Path, language: str | None, title: str | None, identity: str) -> KeptTrack | Failure | None:
    """The first text subtitle stream of this language and title; None where the file holds no such streams at all.

    identity: of the media file, a part of the track's name. language: a tag of ISO 639 or BCP 47, in whichever form the
    file has it ("de" takes "ger", "deu" and "de-AT", too); title: part of it, in any case. Failure reasons: `no_track`
    (there are streams, none that was asked for) and those of opening a media file.
    """
    try:
        absolute = checked_path(path, DecodeOptions())
        demuxer = sniff(absolute).demuxer
        if demuxer == "image":
            return None
        with open_container(absolute, demuxer) as container:
            streams = [one for one in container.streams.subtitles if _codec(one) in TEXT_CODECS]
            if not streams:
                return None
            chosen = next((one for one in streams if _is_wanted(one.metadata, language, title)), None)
            if chosen is None:
                return _none_of(path, streams, language, title)
            return KeptTrack(f"stream-{chosen.index}.{identity}.json", _content(container, chosen))
    except DecodeFailure as error:
        return Failure(error.failure.reason, "captions", error.failure.message)
    except FFmpegError as error:
        return Failure("corrupt", "captions", f"{path.name}: its subtitles cannot be read: {error.strerror}")


def _codec(stream: Any) -> str:
    return stream.codec.canonical_name if stream.codec_context is not None else ""


def _is_wanted(metadata: dict[str, str], language: str | None, title: str | None) -> bool:
    if language:
        found = primary_language(metadata.get("language", ""))
        if found is None or found != primary_language(language):
            return False
    return not title or title.lower() in metadata.get("title", "").lower()


def _none_of(path: Path, streams: list[Any], language: str | None, title: str | None) -> Failure:
    found = ", ".join(f"{s.metadata.get('language', 'und')} {s.metadata.get('title', '')!r}" for s in streams)
    wanted = " ".join([*([f"language {language}"] if language else []), *([f"title {title!r}"] if title else [])])
    return Failure("no_track", "captions", f"{path.name} holds subtitles {found}; none has {wanted}")


def _content(container: av.container.InputContainer, stream: Any) -> bytes:
    base, zero = Fraction(stream.time_base), Fraction(container.start_time or 0, 1_000_000)
    cues: list[tuple[float, float, str]] = []
    for packet in container.demux(stream):
        text = _text(bytes(packet), _codec(stream)) if packet.size and packet.pts is not None else ""
        if text:
            start = packet.pts * base - zero
            cues.append((float(start), float(start + (packet.duration or 0) * base), text))
    facts = {"codec": _codec(stream), "stream": stream.index}
    facts |= {key: stream.metadata.get(key, "") for key in ("language", "title")}
    lists = {key: [cue[n] for cue in cues] for n, key in enumerate(("start", "end", "text"))}
    return json.dumps(facts | lists, ensure_ascii=False, sort_keys=True).encode()


def _text(data: bytes, codec: str) -> str:
    """What a packet says: bytes that are no UTF-8 as U+FFFD, as in caption files that claim to be UTF-8."""
    if codec == "mov_text":  # a length of two bytes, the text, then boxes of style (3GPP TS 26.245, 5.17)
        data = data[2 : 2 + int.from_bytes(data[:2], "big")]
    text = data.decode("utf-8", errors="replace").rstrip("\0")
    if codec == "ass":
        text = ",".join(text.split(",")[_ASS_FIELDS:])
    return text.strip("\r\n")
