"""Canonical bytes and digests."""

from __future__ import annotations

import json

import pytest
import xxhash

from shared.fingerprint import canonical_json, fingerprint, hash_bytes, hash_file, is_sealed, sealed_json


def test_canonical_json_does_not_depend_on_key_order():
    assert canonical_json({"b": 1, "a": [1.5, "é"]}) == '{\n "a": [\n  1.5,\n  "é"\n ],\n "b": 1\n}\n'.encode()
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1}) != fingerprint({"a": 2, "b": 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(ValueError):  # noqa: PT011  (json and the codec word it differently)
        canonical_json({"x": value})


def test_the_digest_is_that_of_the_bytes_without_its_line():
    """The rule that FORMAT.md gives to people who have no canonical JSON writer."""
    data = sealed_json({"captions": [], "format": "f", "nested": {"digest": "not this one"}})
    line = next(line for line in data.splitlines(keepends=True) if line.startswith(b' "digest": '))
    digest = xxhash.xxh3_128_hexdigest(data.replace(line, b""))
    assert line == f' "digest": "{digest}",\n'.encode()


def test_every_flipped_bit_of_a_sealed_file_shows():
    data = sealed_json({"a": [1, 2.5, None, True], "zed": {"text": "é 'x' \n"}})
    assert is_sealed(json.loads(data), data)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            content = json.loads(bytes(flipped))
        except ValueError:
            continue
        assert not isinstance(content, dict) or not is_sealed(content, bytes(flipped)), bit


@pytest.mark.parametrize("text", ['{"a": 1e999, "digest": ""}', '{"a": "\\ud800", "digest": ""}', '{"a": NaN}'])
def test_content_that_could_never_have_been_written_is_not_sealed(text):
    assert not is_sealed(json.loads(text), text.encode())


def test_hash_of_a_file_is_that_of_its_bytes(tmp_path):
    data = bytes(range(256)) * 20_000  # more than one block
    (tmp_path / "f").write_bytes(data)
    assert hash_file(tmp_path / "f") == hash_bytes(data) == xxhash.xxh3_128_hexdigest(data)
