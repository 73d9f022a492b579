"""One video as an HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from preprocess.inspection.view import Span, VideoView
from shared.atomic import replace_file
from shared.errors import RequestError
from shared.store import refuse_inside_store

_WIDTH_PER_SECOND, _LEAST_WIDTH, _MOST_WIDTH = 12, 640, 12_000
_LANE, _GAP, _TICKS, _MARGIN = 26, 8, 24, 72
PICTURE_WIDTH, _PICTURE_HEIGHT = 68, 51


@dataclass(frozen=True)
class Box:
    """A span as a rectangle: x and width in units of the drawing, and what to say of it."""

    x: float
    width: float
    label: str


@dataclass(frozen=True)
class Lane:
    """A line of the drawing. y: its top. rows: spans that overlap lie below each other, this many deep."""

    title: str
    kind: str
    y: int
    boxes: tuple[tuple[Box, int], ...]
    depth: int


@dataclass(frozen=True)
class Drawing:
    """pictures: those that fit side by side, each where its time is; `label` is the picture's data URI."""

    width: int
    height: int
    pictures: tuple[Box, ...]
    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[float, str], ...]


def page(view: VideoView) -> str:
    """The page, self-contained; every text of the store is escaped."""
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("video.html.j2").render(
        view=view, drawing=draw(view), lane_height=_LANE, picture_top=_TICKS, picture_height=_PICTURE_HEIGHT
    )


def write_page(path: Path, view: Callable[[], VideoView]) -> None:
    """Write the page of what `view` gives. Raises RequestError where there can be no file, before anything is read."""
    refuse_inside_store(path, "the page (--html FILE)")
    if path.is_dir() or not path.parent.is_dir():
        raise RequestError(f"{path} cannot be a file: it is a folder, or its folder does not exist; name another")
    content = page(view()).encode()
    try:
        replace_file(path, content)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}; name another file") from None


def draw(view: VideoView) -> Drawing:
    """Every lane of a video along one axis of time."""
    last = max([view.duration, *(span.end for span in (*view.captions, *view.windows))])
    for track in view.tracks:
        last = max([last, *(cue.end for cue in track.cues)])
    last = last or 1.0
    width = int(min(_MOST_WIDTH, max(_LEAST_WIDTH, last * _WIDTH_PER_SECOND)))
    pictures = _side_by_side(view.pictures, width / last)
    lanes: list[Lane] = []
    y = _TICKS + (_PICTURE_HEIGHT + _GAP if pictures else 0)
    for title, kind, spans in _content(view):
        boxes = _stacked(spans, width / last)
        depth = 1 + max((level for _, level in boxes), default=0)
        lanes.append(Lane(title, kind, y, boxes, depth))
        y += 18 + depth * _LANE + _GAP
    ticks = tuple((second / last * width, _clock(second)) for second in _seconds(last, width))
    return Drawing(width + _MARGIN, y, pictures, tuple(lanes), ticks)


def _content(view: VideoView) -> list[tuple[str, str, Sequence[Span]]]:
    content: list[tuple[str, str, Sequence[Span]]] = []
    for stream in view.streams:
        rows = [Span(float(start), float(end), f"row {n}") for n, (start, end) in enumerate(stream.spans)]
        content.append((f"Rows of {stream.name}: {stream.failure or len(rows)}", "rows", rows))
    for track in view.tracks:
        content.append((f"Captions as found, {track.name}: {track.failure or len(track.cues)}", "found", track.cues))
    if not view.missing:
        content.append((f"Captions after cleaning: {len(view.captions)}", "clean", view.captions))
        content.append((f"Windows: {len(view.windows)}", "windows", view.windows))
    return content


def _stacked(spans: Sequence[Span], scale: float) -> tuple[tuple[Box, int], ...]:
    """Boxes with the level at which each lies: the first that is free there."""
    free: list[float] = []
    placed = []
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        x, width = span.start * scale, max(1.5, (span.end - span.start) * scale)
        level = next((n for n, end in enumerate(free) if end <= x + 0.01), len(free))
        free[level : level + 1] = [x + width]
        words = f"{span.note}: {span.text}" if span.note else span.text
        placed.append((Box(x, width, f"{span.start:.2f} to {span.end:.2f} s: {words}"), level))
    return tuple(placed)


def _side_by_side(pictures: Sequence[Span], scale: float) -> tuple[Box, ...]:
    placed: list[Box] = []
    for picture in pictures:
        x = picture.start * scale
        if not placed or x >= placed[-1].x + PICTURE_WIDTH:
            placed.append(Box(x, PICTURE_WIDTH, picture.text))
    return tuple(placed)


def _seconds(last: float, width: int) -> list[float]:
    """Round seconds for the ticks, at least 60 units apart."""
    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
    step = next((step for step in steps if step * width / last >= 60), 7200)
    return [number * step for number in range(int(last / step) + 1)]


def _clock(second: float) -> str:
    if second < 60:
        return f"{second:g} s"
    minutes, rest = divmod(second, 60)
    return f"{int(minutes)}:{rest:02.0f}"
