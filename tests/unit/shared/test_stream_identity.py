"""What of a stream's identity decides its rows."""

from __future__ import annotations

import pytest

from shared.stream_identity import settled

IDENTITY = {
    "extractor": {"model": "m"},
    "decode": {"rules": 3, "keep_partial": False},
    "rows": ["npy", "float16", [8]],
}


@pytest.mark.parametrize("change", [{"decode": {"rules": 3, "keep_partial": True}}, {"rows": ["h5", "float16", [8]]}])
def test_what_leaves_rows_as_they_are(change: dict[str, object]) -> None:
    assert settled(IDENTITY | change) == settled(IDENTITY)


@pytest.mark.parametrize(
    "change",
    [
        {"decode": {"rules": 4, "keep_partial": False}},
        {"rows": ["npy", "float32", [8]]},
        {"rows": ["npy", "float16", [9]]},
        {"extractor": {"model": "n"}},
    ],
)
def test_what_makes_other_rows(change: dict[str, object]) -> None:
    assert settled(IDENTITY | change) != settled(IDENTITY)


def test_identities_of_another_form_stay_what_they_are() -> None:
    for other in ({}, {"decode": "x", "rows": 3}):
        assert settled(other) == other
