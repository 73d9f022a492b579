"""What a change of configuration leaves as it is: a stream is not extracted again for the sake of a file format.

Two things can change without most rows being touched: the container, and whether what decodes of damaged files is kept.
"""

from __future__ import annotations

from shared.schema import ShardIndex, StreamEntry
from shared.stream_identity import settled

# Reasons of failures that `decode.keep_partial` may turn into rows, or tell in other words.
_OF_DAMAGE = {"corrupt", "truncated"}


def keeps_rows(old: StreamEntry, new: StreamEntry) -> bool:
    """Whether the rows of a stream stay what they are but for `touched_videos`."""
    return settled(old.identity) == settled(new.identity)


def touched_videos(index: ShardIndex, old: StreamEntry, new: StreamEntry) -> set[str]:
    """Videos of a shard that must be extracted again all the same."""
    if old.identity.get("decode") == new.identity.get("decode"):
        return set()
    partial = {video.id for video in index.videos if video.partial}
    return partial | {record.id for record in index.failed if record.reason in _OF_DAMAGE}


def videos_of(index: ShardIndex) -> set[str]:
    """All videos of a shard, failed ones too."""
    return {video.id for video in index.videos} | {record.id for record in index.failed}
