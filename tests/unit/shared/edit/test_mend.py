"""A flipped bit is found, wherever it is."""

from __future__ import annotations

import pytest

from shared.edit.mend import mend_file, unflipped, unflipped_seal
from shared.fingerprint import hash_bytes, sealed_json
from shared.schema import FileEntry


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_every_bit_of_a_file(tmp_path):
    data = b'{"a": 1}\n'
    entry = FileEntry(bytes=len(data), xxh3=hash_bytes(data))
    for bit in range(len(data) * 8):
        (tmp_path / "x.json").write_bytes(flipped(data, bit))
        made = mend_file(tmp_path, "x.json", entry, tmp_path / "scratch")
        assert made is not None
        assert made.scratch.read_bytes() == data
    (tmp_path / "x.json").write_bytes(flipped(flipped(data, 3), 40))
    assert mend_file(tmp_path, "x.json", entry, tmp_path / "scratch") is None, "two bits are not one"
    (tmp_path / "x.json").write_bytes(data[:-1])
    assert mend_file(tmp_path, "x.json", entry, tmp_path / "scratch") is None
    assert mend_file(tmp_path, "none.json", entry, tmp_path / "scratch") is None


def test_long_files_are_not_tried():
    assert unflipped(bytes(9), lambda _: True, most=8) is None
    assert unflipped(bytes(8), lambda _: True, most=8) == b"\x01" + bytes(7)


@pytest.mark.parametrize(
    "content",
    [{"host": "a", "workers": 4}, {"a": {"digest": "no"}, "b": [1]}, {"captions": [], "files": {}, "z": {"x": 1.5}}],
    ids=["first", "last", "middle"],
)
def test_every_bit_of_a_sealed_file_but_the_line_ends_of_its_digest(content):
    data = sealed_json(content)
    start = data.index(b' "digest": "', data.index(b"]") if "b" in content else 0)
    end = data.index(b"\n", start)
    beside = {start - 1, end} | ({start - 2, *range(end, len(data))} if "b" in content else set())
    for bit in range(len(data) * 8):
        found = unflipped_seal(flipped(data, bit))
        assert found == data or (found is None and bit // 8 in beside), bit
    assert unflipped_seal(flipped(flipped(data, 20), 99)) is None
    assert unflipped_seal(b"no file of ours") is None
