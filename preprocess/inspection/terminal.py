"""A store's videos, or one of them as a timeline, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from preprocess.inspection.view import Line, Span, StreamView, VideoView

_BAR = 40
_MOST_LINES = 40
# A lane of rows is drawn with a mark at each row's start, as far as they can be told apart.
_FULL, _MARK, _EMPTY = "█", "▌", "·"


def video_table(lines: Sequence[Line], streams: Sequence[str], set_name: str) -> Table:
    """The list of videos; a column of rows for each stream. Where it is too narrow, a cell goes on in the next line."""
    headings = ["video", "seconds", *(f"rows of {name}" for name in streams)]
    headings += [f"captions ({set_name})", "windows", "split", f"not in {set_name}, why"] if set_name else []
    table = Table(title=None)
    for heading in headings:
        table.add_column(Text(heading), overflow="fold")
    for line in lines:
        seconds = "" if line.seconds is None else f"{line.seconds:.1f}"
        cells = [line.video_id, seconds, *line.rows]
        cells += [line.captions, line.windows, line.split, line.missing] if set_name else []
        # Text, not str: ids and reasons are not markup.
        table.add_row(*map(Text, cells))
    return table


def timeline(view: VideoView) -> RenderableType:
    """One video: rows, captions as found and as cleaned, windows, each drawn along the same line of time."""
    parts: list[RenderableType] = [_head(view), _scale(view.duration)]
    parts += [_rows(stream, view.duration) for stream in view.streams]
    for track in view.tracks:
        note = track.failure or f"{len(track.cues)} cues" + (f", {track.skipped} skipped" if track.skipped else "")
        parts += _lane(f"Captions as found: {track.name} ({note})", track.cues, view.duration)
    if not view.tracks:
        parts.append(Text("\nCaptions as found: none", style="bold"))
    if view.missing:
        parts.append(Text(f"\nSet {view.set_name or 'none'}: {view.missing}", style="bold"))
    else:
        cleaned = f"Captions after cleaning: set {view.set_name} ({len(view.captions)})"
        parts += _lane(cleaned, view.captions, view.duration)
        windows = f"Windows with their candidates, a line with a dash each ({len(view.windows)})"
        parts += _lane(windows, [_listed(window) for window in view.windows], view.duration)
    return Group(*parts)


def _listed(window: Span) -> Span:
    """With a mark before every candidate: a long one goes on in a line that looks like another's."""
    return replace(window, text="".join(f"\n- {text}" for text in window.text.split("\n") if text))


def bar(start: float, end: float, duration: float, width: int = _BAR) -> str:
    """A span drawn on a line of `width` cells that stands for the whole video; at least one cell."""
    if duration <= 0:
        return _EMPTY * width
    first = min(width - 1, max(0, int(start / duration * width)))
    last = min(width, max(first + 1, round(end / duration * width)))
    return _EMPTY * first + _FULL * (last - first) + _EMPTY * (width - last)


def row_bar(stream: StreamView, duration: float, width: int = _BAR) -> str:
    """Where a stream has rows; a mark where a row starts, unless every cell has one."""
    cells = [_EMPTY] * width
    if duration > 0:
        for start, end in stream.spans:
            for cell in range(max(0, int(start / duration * width)), min(width, max(1, round(end / duration * width)))):
                cells[cell] = _FULL
        if 0 < len(stream.spans) <= width // 2:
            for start in stream.spans[:, 0]:
                cells[min(width - 1, max(0, int(start / duration * width)))] = _MARK
    return "".join(cells)


def _head(view: VideoView) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_row(Text(view.video_id, style="bold"), Text(f"{view.duration:.2f} s, split {view.split or 'none'}"))
    for name, value in (*view.facts, *view.attributes.items()):
        grid.add_row(Text(name), Text(value))
    return grid


def _scale(duration: float) -> Text:
    middle, end = f"{duration / 2:.1f}", f"{duration:.1f} s"
    line = "0" + middle.center(_BAR - 1 - len(end)) + end
    return Text(f"\n{'':16}{line}")


def _rows(stream: StreamView, duration: float) -> Text:
    note = stream.failure or (f"{len(stream.spans)} rows" if len(stream.spans) else "no rows")
    return Text(f"{stream.name[:15]:16}{row_bar(stream, duration)}  {note}")


def _lane(title: str, spans: Sequence[Span], duration: float) -> Iterator[RenderableType]:
    yield Text(f"\n{title}", style="bold")
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for span in spans[:_MOST_LINES]:
        words = f"[{span.note}] {span.text}" if span.note else span.text
        grid.add_row(
            Text(f"{span.start:.2f}-{span.end:.2f}".rjust(15)), Text(bar(span.start, span.end, duration)), Text(words)
        )
    if spans:
        yield grid
    if len(spans) > _MOST_LINES:
        yield Text(f"and {len(spans) - _MOST_LINES} more: `--html FILE` shows all")
