"""Reading indexes: rows with their places, whatever is in the file."""

from __future__ import annotations

import csv
import io
import random
import tempfile
from pathlib import Path

import ijson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.adapters.items import Fault, number_of, text_of, timed_text
from preprocess.adapters.tables import json_items, json_pairs, lines, split_from_name, split_name_of, table
from shared.errors import InputFileError


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("captions_val2017.json", "val"),
        ("results_10M_train.csv", "train"),
        ("Train_GCC-training.tsv", "train"),
        ("Validation_GCC-1.1.0-Validation.tsv", "val"),
        ("something-something-v2-validation.json", "val"),
        ("validation_youcook.csv", "val"),
        ("test_data.json", "test"),
        ("contest.csv", ""),
        ("retrain.csv", ""),
    ],
)
def test_split_from_a_file_name(name: str, split: str) -> None:
    assert split_from_name(Path(name)) == split


def test_words_for_splits() -> None:
    assert [split_name_of(word) for word in ("training", "Validate", "TEST", "fold7", "", None, 3)] == [
        "train", "val", "test", "fold7", "", "", "",
    ]  # fmt: skip


def test_numbers_and_texts() -> None:
    assert [number_of(value) for value in (1, "2.5", "-3", 1e400, "nan", True, None, [], "1_0", "1e9", 10**400)] == [
        1.0, 2.5, -3.0, *[None] * 8,
    ]  # fmt: skip
    assert [text_of(value) for value in (" a\n b\u2028c ", 5, None, "\ud800", "")] == ["a b c", "", "", "", ""]
    assert isinstance(timed_text(0, 1, "a" * 100_001), str)


@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"])), min_size=2, max_size=2),
        max_size=20,
    )
)
def test_a_table_reads_what_the_csv_library_writes(rows: list[list[str]]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["a", "b"], *rows])
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        Path(file.name).write_text(text.getvalue(), encoding="utf-8", newline="")
        found = list(table(Path(file.name), ("a", "b"), "a test"))
    kept = [[fields["a"], fields["b"]] for _, fields in (item for item in found if not isinstance(item, Fault))]
    # More than 64 lines are no field.
    assert kept == [row for row in rows if all(field.count("\n") < 64 for field in row)]


def test_lines_and_rows_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'\xef\xbb\xbfa,b\r\n1,"two\nlines"\r\n\r\n2,caf\xe9\n3,"x" y\n4,5\n6,"\n7,8')
    found = list(table(path, ("b", "a"), "a test"))
    assert [(item.row.place, item.message) for item in found if isinstance(item, Fault)] == [
        ("line 5", "not UTF-8"),
        ("line 6", "not a CSV row: ',' expected after '\"'"),
        ("line 8", "a quote is opened and not closed"),
    ]
    assert [(item[0].place, item[1]) for item in found if not isinstance(item, Fault)] == [
        ("line 2", {"a": "1", "b": "two\nlines"}),
        ("line 7", {"a": "4", "b": "5"}),
        ("line 9", {"a": "7", "b": "8"}),
    ]
    assert [number for number, _ in lines(path, "a test")] == [1, 2, 3, 5, 6, 7, 8, 9]


def test_an_open_quote_costs_one_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + '1,"open\n' + "2,x\n" * 100 + '3,"open again\n4,y\n')
    found = list(table(path, ("a", "b"), "a test"))
    assert [item.row.place for item in found if isinstance(item, Fault)] == ["line 2", "line 103"]
    assert len(found) == 103


@pytest.mark.parametrize("backend", ["", "python"])
def test_json_of_every_kind_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    if backend:
        for name in ("items", "kvitems", "parse"):
            monkeypatch.setattr(ijson, name, getattr(ijson.get_backend(backend), name))
    path = tmp_path / "x.json"
    for data in (
        b"",
        b"{",
        b"[1,",
        b"\xff\xfe",
        b"nul",
        b'{"a": [1, 2}',
        b'["\xed\xa0\x80"]',
        b"[" * 5000,
        b'[{"a": 1e}]',
    ):
        path.write_bytes(data)
        with pytest.raises(InputFileError, match=r"x\.json"):
            list(json_items(path, "", "a test"))
        with pytest.raises(InputFileError, match=r"x\.json"):
            list(json_pairs(path, "", "a test"))
    with pytest.raises(InputFileError, match="cannot be read"):
        list(json_items(tmp_path / "none.json", "", "a test"))
    with pytest.raises(InputFileError, match="cannot be read"):
        list(table(tmp_path, ("a",), "a test"))


@pytest.mark.parametrize("mutations", [300, pytest.param(5000, marks=pytest.mark.full)])
def test_mutated_indexes_raise_nothing_else(tmp_path: Path, mutations: int) -> None:
    draw = random.Random(7)
    sound = b'a,b\n1,"x, ""y"""\n2,z\n{"a": [{"b": 1.5e3, "c": "\\u00e9"}, null]}\n'
    path = tmp_path / "x"
    for _ in range(mutations):
        data = bytearray(sound)
        for _ in range(draw.randint(1, 6)):
            at = draw.randrange(len(data))
            data[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
        path.write_bytes(bytes(data))
        for read in (
            lambda: table(path, ("a",), "x"),
            lambda: json_items(path, "a", "x"),
            lambda: json_pairs(path, "", "x"),
        ):
            try:
                list(read())  # type: ignore[no-untyped-call, call-overload]
            except InputFileError:
                continue
