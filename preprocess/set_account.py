"""What a manifest set tells of itself, in lines for people: what cleaning changed, what was left out, tokens.

The facts are `report` in the set's manifest.json (`set_report.py`); sets of earlier releases may lack some.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shared.schema import ManifestInfo

# From these shares on a tokenizer does not fit the language or the length of the captions.
_MANY_UNKNOWN, _MANY_TRUNCATED, _MANY_EMPTY = 0.05, 0.1, 0.01


def set_lines(info: ManifestInfo, examples: bool = False) -> Iterator[str]:
    """Lines about how a set came about. examples: a few below each count."""
    report: dict[str, Any] = info.report
    if "videos" not in report:
        yield from _without_report(info)
        return
    yield f"videos: {_counts(report['videos']) or 'none'}"
    yield from _counted("left out", report.get("failures", {}))
    mute = {
        "without captions": report.get("videos_without_captions", 0),
        "without windows": report.get("videos_without_windows", 0),
    }
    yield from _counted("videos", mute)
    yield f"captions: {info.captions} from {report.get('cues', 0)} cues"
    skipped = report.get("skipped_cues", {})
    yield from _told("cues that could not be read", {"": skipped}, "count", examples)
    yield from _told("cleaning changed", report.get("cleaning", {}), "changed", examples)
    yield from _told("filters dropped", report.get("filters", {}), "dropped", examples)
    left_out = report.get("windows_left_out", {})
    yield from _counted("windows left out", left_out.get("counts", {}))
    if examples:
        yield from _examples(left_out.get("examples", ()))
    yield from _near_duplicates(report.get("near_duplicates", {}), examples)
    yield from _tokens(report.get("tokens", {}), info.tokenizer.get("max_length"))


def _without_report(info: ManifestInfo) -> Iterator[str]:
    """A report tells of videos, some of which an edited set has no more; its tables still say how many there are."""
    command = info.report.get("edited_by")
    why = f"edited by `preprocess {command}`" if command else "made by a release that wrote none"
    yield f"no report: this set was {why}; `python -m preprocess manifests CONFIG` makes it anew, with its report"
    yield f"videos: {sum(info.parts.get(part, 0) for part in info.part_files('videos'))}"
    yield f"captions: {info.captions}, of {info.tokens} tokens"
    yield f"windows: {_counts(info.splits) or 'none'}"


def _near_duplicates(found: Mapping[str, Any], examples: bool) -> Iterator[str]:
    done = "dropped from training" if found.get("dropped") else "found"
    for kind in ("videos", "captions"):
        counts = found.get(kind, {}).get("counts", {})
        pairs = {f"between {pair.replace(', ', ' and ')}": count for pair, count in counts.items()}
        yield from _counted(f"near-duplicate {kind} {done}", pairs)
        if examples:
            yield from _examples(found.get(kind, {}).get("examples", ()))


def _tokens(rates: Mapping[str, float], max_length: int | None) -> Iterator[str]:
    unknown, truncated, empty = (rates.get(name, 0.0) for name in ("unknown", "truncated", "empty"))
    line = f"tokens: {unknown:.1%} unknown; captions: {truncated:.1%} truncated, {empty:.1%} without any token"
    if unknown >= _MANY_UNKNOWN or empty >= _MANY_EMPTY:
        line += "; does this tokenizer fit these captions?"
    if truncated >= _MANY_TRUNCATED:
        line += f"; they are cut at tokenizer.max_length ({max_length}): raise it, or cut captions by `segment`"
    yield line


def _told(what: str, steps: Mapping[str, Mapping[str, Any]], count: str, examples: bool) -> Iterator[str]:
    """Counts of steps on one line, or each with its examples."""
    found = {step: facts for step, facts in steps.items() if facts.get(count)}
    if not examples:
        yield from _counted(what, {step: facts[count] for step, facts in found.items()})
        return
    for step, facts in found.items():
        yield f"{what}: {_counts({step: facts[count]})}"
        yield from _examples(facts.get("examples", ()))


def _examples(rows: Any) -> Iterator[str]:
    for video_id, *fields in rows:
        yield f"  {video_id}: " + "  =>  ".join(str(field) or "(nothing)" for field in fields)


def _counted(what: str, counts: Mapping[str, int]) -> Iterator[str]:
    if line := _counts(counts):
        yield f"{what}: {line}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}".strip() for name, count in counts.items() if count)
