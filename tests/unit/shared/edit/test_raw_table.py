"""Tables as bytes say what the csv module says."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared import manifest_writer
from shared.edit import raw_table
from shared.edit.raw_table import RawParts, RawRows, RawTable, csv_field, renumbered, row_ends
from shared.errors import DamageFound
from shared.manifest_set import ManifestSet
from shared.manifest_writer import ManifestSetWriter

TEXT = st.text(alphabet=st.sampled_from('ab",\n\r 9é'), max_size=6)
BAG = st.lists(st.integers(0, 10**9), max_size=4)


def as_bytes(rows) -> RawRows:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    data = b"".join(line.encode() for line in _with_lf(text.getvalue(), rows))
    data_N = np.frombuffer(data, np.uint8)
    return RawRows(data_N, row_ends(data_N))


def _with_lf(text, rows):
    for row in rows:
        line = io.StringIO()
        csv.writer(line, lineterminator="\r\n").writerow(row)
        yield line.getvalue().removesuffix("\r\n") + "\n"


def parsed(rows: RawRows):
    return list(csv.reader(io.StringIO(bytes(rows.data_N).decode(), newline="")))


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8), st.integers(1, 9), st.data())
def test_rows_end_where_the_csv_module_ends_them(rows, block, data):
    raw = as_bytes(rows)
    whole, raw_table._BLOCK_BYTES = raw_table._BLOCK_BYTES, block
    try:
        np.testing.assert_array_equal(row_ends(raw.data_N), raw.ends_R)
    finally:
        raw_table._BLOCK_BYTES = whole
    assert len(raw) == len(rows)
    first = data.draw(st.integers(0, len(rows)))
    last = data.draw(st.integers(first, len(rows)))
    some = raw.cut(first, last)
    assert parsed(some) == [list(row) for row in rows[first:last]]
    assert len(some) == last - first
    if first < last:
        assert some.begins_with(csv_field(rows[first][0]))
        assert not some.begins_with(csv_field(rows[first][0] + "a"))


@given(st.lists(st.tuples(TEXT, BAG), min_size=1, max_size=8), st.integers(0, 10**9), st.integers(1, 4))
def test_numbers_are_moved_and_nothing_else(rows, shift, block):
    raw = as_bytes([(text, " ".join(map(str, bag))) for text, bag in rows])
    whole, raw_table._BLOCK_ROWS = raw_table._BLOCK_ROWS, block
    try:
        pieces = list(renumbered(raw, shift))
    finally:
        raw_table._BLOCK_ROWS = whole
    expected = as_bytes([(text, " ".join(str(n + shift) for n in bag)) for text, bag in rows])
    assert b"".join(bytes(piece.data_N) for piece in pieces) == bytes(expected.data_N)
    assert [row for piece in pieces for row in parsed(piece)] == parsed(expected)
    back = RawRows(expected.data_N, expected.ends_R)
    assert b"".join(bytes(piece.data_N) for piece in renumbered(back, -shift)) == bytes(raw.data_N)


@pytest.fixture
def manifest(tmp_path, monkeypatch):
    """Ten captions in parts of four."""
    monkeypatch.setattr(manifest_writer, "PART_ROWS", 4)
    writer = ManifestSetWriter(tmp_path / "set")
    writer.add_captions(
        "v", [0.0] * 10, [1.0] * 10, [f"text\n{n}" for n in range(10)], [np.array([n]) for n in range(10)]
    )
    writer.add_video("v", "train", 1.0, 1)
    writer.finish(name="s", stream="s", stream_fingerprint="ab", config={}, tokenizer={"pad_id": 0}, report={})
    return ManifestSet(tmp_path, "set")


@pytest.mark.parametrize(("first", "last", "pieces"), [(0, 10, 3), (3, 5, 2), (4, 8, 1), (9, 10, 1), (5, 5, 0)])
def test_rows_of_a_table_through_its_parts(manifest, first, last, pieces):
    table = RawTable(manifest, "captions")
    found = list(table.rows(first, last))
    assert (len(table), len(found)) == (10, pieces)
    assert [row[3] for rows in found for row in parsed(rows)] == [f"text\n{n}" for n in range(first, last)]


def test_copied_tables_are_cut_into_the_same_parts(manifest, tmp_path):
    (tmp_path / "copy").mkdir()
    copy = RawParts(tmp_path / "copy", "captions", manifest_writer.CAPTION_COLUMNS)
    for first, last in ((0, 3), (3, 9), (9, 10)):
        for rows in RawTable(manifest, "captions").rows(first, last):
            copy.add(rows)
    assert copy.finish() == {file: manifest.info.parts[file] for file in manifest.info.part_files("captions")}
    for path in (tmp_path / "copy").iterdir():
        assert path.read_bytes() == (manifest.path / path.name).read_bytes()


def test_a_part_that_lacks_rows_is_damage(manifest):
    path = manifest.path / "captions.00001.csv"
    data = path.read_bytes()
    for wrong in (data[:-3], data + b"a,b\n", data + b'"', b""):
        path.write_bytes(wrong)
        with pytest.raises((DamageFound, ValueError)):
            list(RawTable(manifest, "captions").rows(0, 10))
