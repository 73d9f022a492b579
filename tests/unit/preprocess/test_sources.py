"""The memory of file identities can forget."""

from __future__ import annotations

from pathlib import Path

from preprocess.sources import SourceCache


def test_what_is_not_kept_is_gone_from_the_database(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.mp4" for name in ("kept", "secret", "changed")]
    for file in files:
        file.write_bytes(file.name.encode())
    with SourceCache(tmp_path / "store") as cache:
        sources = [cache.source_of(file) for file in files]
        assert sources[0] is not None
        cache.keep_only({sources[0]})
    data = (tmp_path / "store" / ".cache" / "sources.sqlite").read_bytes()
    assert [name.encode() in data for name in ("kept.mp4", "secret.mp4", "changed.mp4")] == [True, False, False]
    with SourceCache(tmp_path / "store") as cache:
        assert [cache.source_of(file) for file in files] == sources, "only a memory: read again"
