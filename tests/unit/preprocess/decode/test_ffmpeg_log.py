import io
from fractions import Fraction
from queue import SimpleQueue

from preprocess.decode.ffmpeg_log import FrameEvent, Outcome, read_log

LOG = b"""\
[showinfo@all @ 0x7fdd60002300] [info] config in time_base: 1/90000, frame_rate: 30000/1001
[showinfo@all @ 0x1] [info] n:   0 pts:   3600 pts_time:0.04 duration:   3600 fmt:yuv420p iskey:1 type:I
[showinfo@all @ 0x1] [info]   side data - User Data=[showinfo@fake
[showinfo@sel @ 0x2] [info] n:   0 pts:   3600 pts_time:0.04 duration:   3600 fmt:yuv420p iskey:1 type:I
[showinfo@all @ 0x1] [info] n:   1 pts:  NOPTS pts_time:NOPTS duration:  NOPTS fmt:yuv420p iskey:0 type:B
[h264 @ 0x3] [error] error while decoding MB 3 4
[in#0 @ 0x4] [verbose]   Input stream #0:0 (video): 132 packets read (9 bytes); 124 frames decoded; 8 decode errors;
"""


def read(log: bytes) -> tuple[list[FrameEvent], Outcome]:
    events: SimpleQueue[FrameEvent | None] = SimpleQueue()
    outcome = Outcome()
    read_log(io.BytesIO(log), events, outcome)
    found = []
    while (event := events.get_nowait()) is not None:
        found.append(event)
    assert events.empty()
    return found, outcome


def test_frames_become_events_with_exact_times():
    events, outcome = read(LOG)
    assert [(e.chosen, e.index, e.pts, e.ticks, e.key) for e in events] == [
        (False, 0, 3600, 3600, True),
        (True, 0, 3600, 3600, True),
        (False, 1, None, 0, False),
    ]
    assert {e.time_base for e in events} == {Fraction(1, 90000)}
    assert {e.rate for e in events} == {Fraction(30000, 1001)}
    assert (outcome.packets, outcome.errors) == (132, 8)


def test_a_message_of_a_library_in_the_middle_of_a_frame_is_no_frame():
    events, _ = read(b"[showinfo@all @ 0x1] [info] n: 0 pts: [h264 @ 0x2] [error] concealing 3 errors\n")
    assert events == []


def test_trouble_in_the_line_of_a_frame_is_recognised():
    line = next(line for line in LOG.splitlines() if b"iskey:1" in line)
    assert read(line + b" corrupt decoded frame\n")[1].damaged
    assert len(read(line + b" corrupt decoded frame\n")[0]) == 1


def test_trouble_is_recognised():
    assert read(b"[vist#0:0] [warning] corrupt decoded frame\n")[1].damaged
    assert read(b"[matroska @ 0x1] [error] File ended prematurely at pos. 60000\n")[1].damaged
    assert read(b"[info] Exiting normally, received signal 24.\n")[1].out_of_time
    assert read(b"[fatal] Decoding requested, but no decoder found for: none\n")[1].no_decoder
    assert read(LOG)[1] == Outcome(packets=132, errors=8)
