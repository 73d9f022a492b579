"""Whole streams and sets taken out: their files are gone, all others are what they were."""

from __future__ import annotations

import pytest

from shared.edit.drop import drop_parts
from shared.errors import StoreError
from shared.store import open_store, open_writer
from shared.verify import verify_store


def drop(store, streams=(), sets=()):
    with open_writer(store) as writer:
        drop_parts(writer, streams, sets)


def test_a_stream_goes_with_its_files_and_nothing_else_changes(editing, store):
    before = editing.content(store)
    drop(store, ["wide"])
    after = editing.content(store)
    assert verify_store(store) == []
    assert sorted(open_store(store).root.streams) == ["default", "thumbs"]
    gone = before.keys() - after.keys()
    assert gone
    assert all(path.startswith("features/wide/") for path in gone)
    assert {path for path in after if after[path] != before[path]} == {"store.json"}


def test_a_set_and_its_stream(editing, store):
    drop(store, ["default"], ["words"])
    assert verify_store(store) == []
    assert not [path for path in editing.content(store) if path.startswith(("features/default", "manifests"))]


def test_a_stream_that_is_being_made_again_goes_altogether(editing, store):
    with open_writer(store) as writer:
        writer.commit([], pending={"wide": editing.entry("wide", fingerprint="ee")})
    drop(store, ["wide"])
    assert "wide" not in open_store(store).root.pending


@pytest.mark.parametrize(
    ("streams", "sets", "words"),
    [
        (["defalt"], [], "has no stream 'defalt': nothing was changed; it has default, thumbs, wide"),
        (["wide"], ["word"], "has no set 'word': nothing was changed; it has words"),
        (["default"], [], "set 'words' was cut for stream 'default' and could not be used without it"),
    ],
)
def test_what_is_refused_changes_nothing(editing, store, streams, sets, words):
    before = editing.content(store)
    with pytest.raises(StoreError, match=words):
        drop(store, streams, sets)
    assert editing.content(store) == before
