"""Readers under mutated input: a track or a typed failure, nothing else, and always an end."""

from __future__ import annotations

import random

import pytest

from preprocess.captions.clean import CleanConfig, clean
from preprocess.captions.read import read_track
from preprocess.captions.types import CaptionTrack
from shared.errors import Failure

SEEDS = {
    "a.vtt": (
        "\ufeffWEBVTT\nKind: captions\n\nSTYLE\n::cue { }\n\nNOTE a\n\nid\n"
        "00:00:00.240 --> 00:00:02.040 align:start\n \n"
        "today<00:00:00.720><c> we</c><00:00:00.880><c> are</c>\n\n00:00:02.040 --> 00:00:02.050\ntoday we are\n \n\n"
        "00:02.050 --> 00:04.810\ntoday we are\nopen<00:00:02.370><c> the</c> &amp; [Music]\n"
        "00:04.810 --> 00:05.000\nÄ\n"
    ),
    "a.srt": (
        "1\n00:00:00,500 --> 00:00:07,000\n<i>one</i>\ntwo\n\n2\n00:00:07,000 --> 00:00:11,890 X1:1\n"
        ">> NAR: (laughs) cafÃ©\n\n\n"
        "3\n0:00:11.890 --> 0:00:16.320\n{\\an8}three\n\n"
    ),
    "a.json": (
        '{"start": [0.5, 1, -1, NaN, 2], "end": [1, 2.5, 3, 4, "x"], "text": ["one <i>two</i>", 3, "a", "b", null]}'
    ),
    "a.csv": 'start,end,text\n0.5,2,"hello, ""you"""\n2,3,line\nx,3,bad\n3,4\n4,5,"two\nlines"\n',
}
TOKENS = [
    b"-->", b"\n\n", b"\r", b"\0", b"<00:00:01.000>", b"<c>", b"&#x1F600;", b"\xff\xfe", b"WEBVTT", b'"', b",", b"[",
    b"(", b">>", b"\xe2\x82", b"99999999999999999999:00:00.000", b"NaN", b"1e999", b"<", b"\xed\xa0\x80",
    b"\xe2\x80\x8b",
]  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            out[at:at] = rng.choice(TOKENS)
        elif kind == 1:
            del out[at : at + rng.randint(1, 40)]
        elif kind == 2 and out:
            out[at % len(out)] = rng.randrange(256)
        elif kind == 3:
            begin = rng.randrange(len(out) + 1)
            out[at:at] = out[begin : begin + rng.randint(1, 200)]
        else:
            out[at:at] = rng.randbytes(4)
    return bytes(out)


def try_mutations(name: str, count: int, seed: int) -> None:
    data = SEEDS[name].encode()
    rng = random.Random(seed)
    for _ in range(count):
        broken = mutated(data, rng)
        track = read_track(broken, name)
        if isinstance(track, Failure):
            assert track.reason in {"empty_file", "not_captions"}
            assert track.stage == "captions"
            continue
        assert isinstance(track, CaptionTrack)
        lines = broken.count(b"," if track.format == "json" else b"\n") + broken.count(b"\r") + 1
        assert len(track.cues) + len(track.skipped) <= lines
        for caption in clean(track.cues, 6.0, CleanConfig()).captions:
            assert 0 <= caption.start < caption.end <= 6.0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", SEEDS)
def test_mutated_inputs(name: str) -> None:
    try_mutations(name, 2_000, 1)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SEEDS)
def test_many_mutated_inputs(name: str) -> None:
    try_mutations(name, 20_000, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"WEBVTT\n\n" + b"<" * 200_000,
        b"WEBVTT\n\n00:00.000 --> 00:02.000\n" + b"<a" * 100_000,
        b"WEBVTT\n\n00:00.000 --> 00:02.000\n" + b"[(" * 100_000 + b"a",
        b"WEBVTT\n\n00:00.000 --> 00:02.000\n" + b"a<00:00:01.000>" * 50_000,
        b"WEBVTT\n\n00:00.000 --> 00:02.000\n" + b"&amp;" * 100_000,
        b"WEBVTT\n\n00:00.000 --> 00:02.000\n" + b"&" + b"amp;" * 30_000,
        b"WEBVTT\n\n00:00.000 --> 00:02.000\n" + b"A " * 100_000 + b": b",
        b"WEBVTT\n\n00:00.000 --> 00:02.000\n" + b" " * 100_000 + b"-",
        b"WEBVTT\n\n00:00.000 --> 00:02.000\n" + b"a\n" * 50_000,
        b"WEBVTT\n\n" + b"00:00.000 --> 00:02.000\na b\n\n" * 20_000,
        b"start,end,text\n" + b'1,2,"\n' * 5_000,
    ],
    ids=range(11),
)
@pytest.mark.timeout(60)
def test_nothing_takes_for_ever(data: bytes) -> None:
    track = read_track(data, "a.vtt")
    assert isinstance(track, CaptionTrack)
    clean(track.cues, 10.0, CleanConfig())
