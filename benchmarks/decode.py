"""How fast right frames come out, side by side: `python benchmarks/decode.py [--quick] [FILE]`.

Frames scaled to a shorter side of 224 (224 x 224 for the generated file), all of them and 1 a second, one thread each,
pinned to one core where the system allows it. The figure is CPU seconds of the worker and its children after imports,
so that other work on the machine disturbs less; the best of the rounds counts. Peers do the same scaling: an ffmpeg
process piping frames, decord's get_batch, PyAV, and torchcodec where installed. Whoever returns other frames than ours
(which the tests compare with plain ffmpeg) is printed but is no competitor. `ffmpeg -f null`, which decodes and throws
everything away, is the floor. The last line is JSON: ratio is the best competitor's time over ours, of both tasks the
lower.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import imageio_ffmpeg
import numpy as np

from preprocess.decode import DecodeOptions, Sampling, open_video, probe
from preprocess.decode.video import scaled_size

SIDE = 224
GOAL = 0.95
SAME = 4.0  # grey levels that a frame's mean may differ from ours
TASKS = ("all", "1fps")


class Task:
    """One file and one task, with what a peer needs to know: size of the frames, how many, every how manyth."""

    def __init__(self, path: Path, task: str) -> None:
        info = probe(path)
        self.path, self.all = path, task == "all"
        self.width, self.height = scaled_size(info.width, info.height, SIDE)
        self.frames = info.frames or 0
        self.step = 1 if self.all else round(self.frames / info.duration)
        self.sampling = Sampling(fps=1000) if self.all else Sampling(fps=1)


def ours(backend: str) -> Callable[[Task], Iterator[np.ndarray]]:
    def read(task: Task) -> Iterator[np.ndarray]:
        options = DecodeOptions.model_validate({"backend": backend})
        with open_video(task.path, [task.sampling], options, SIDE) as video:
            for block in video:
                yield from block.frames_THWC

    return read


def ffmpeg_pipe(task: Task) -> Iterator[np.ndarray]:
    choose = "" if task.all else f"select='not(mod(n,{task.step}))',"
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-threads", "1", "-filter_threads", "1"]
    command += ["-i", str(task.path), "-map", "0:v:0", "-vf", f"{choose}scale={task.width}:{task.height}"]
    command += ["-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    shape = (task.height, task.width, 3)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        while process.stdout is not None:
            frame = np.empty(shape, np.uint8)
            if process.stdout.readinto(frame.data) < frame.nbytes:  # type: ignore[attr-defined]
                break
            yield frame


def ffmpeg_null(task: Task) -> Iterator[np.ndarray]:
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-threads", "1", "-i", str(task.path), "-map", "0:v:0"]
    subprocess.run([*command, "-f", "null", "-"], check=True)
    yield from ()


def get_batch(task: Task) -> Iterator[np.ndarray]:
    import decord

    reader = decord.VideoReader(str(task.path), width=task.width, height=task.height, num_threads=1)
    wanted = list(range(0, len(reader), task.step))
    for start in range(0, len(wanted), 64):
        yield from reader.get_batch(wanted[start : start + 64]).asnumpy()


def pyav(task: Task) -> Iterator[np.ndarray]:
    import av
    from av.video.reformatter import VideoReformatter

    with av.open(str(task.path)) as container:
        stream = container.streams.video[0]
        stream.thread_type, stream.codec_context.thread_count = "NONE", 1
        scaler = VideoReformatter()
        for number, frame in enumerate(container.decode(stream)):
            if number % task.step == 0:
                scaled = scaler.reformat(frame, task.width, task.height, "rgb24", interpolation="BICUBIC")
                yield scaled.to_ndarray()


def torchcodec(task: Task) -> Iterator[np.ndarray]:
    from torchcodec.decoders import VideoDecoder
    from torchvision.transforms import v2

    # It scales by no other rule, and this one is cheaper than that of the others.
    resize = v2.Resize((task.height, task.width), interpolation=v2.InterpolationMode.BILINEAR)
    decoder = VideoDecoder(
        str(task.path), dimension_order="NHWC", num_ffmpeg_threads=1, transforms=[resize], seek_mode="exact"
    )
    for start in range(0, len(decoder), 64 * task.step):
        stop = min(len(decoder), start + 64 * task.step)
        yield from decoder.get_frames_in_range(start, stop, task.step).data.numpy()


READERS: dict[str, Callable[[Task], Iterator[np.ndarray]]] = {
    "clipmill auto": ours("auto"),
    "clipmill decord": ours("decord"),
    "clipmill pyav": ours("pyav"),
    "clipmill ffmpeg": ours("ffmpeg"),
    "ffmpeg pipe": ffmpeg_pipe,
    "decord get_batch": get_batch,
    "pyav": pyav,
    "torchcodec": torchcodec,
    "ffmpeg null": ffmpeg_null,
}


def cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def work(name: str, path: Path, task: str, compare: bool) -> None:
    """In a process of its own: print CPU seconds and, when comparing, the mean of each frame."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    known = Task(path, task)
    for _ in zip(READERS[name](known), range(2), strict=False):
        pass  # what is loaded on first use is loaded now
    before = cpu_seconds()
    means = [float(frame.mean()) if compare else 0.0 for frame in READERS[name](known)]
    print(json.dumps({"seconds": cpu_seconds() - before, "means": means}))


def measure(name: str, path: Path, task: str, compare: bool) -> dict[str, object]:
    command = [sys.executable, __file__, "--work", name, "--task", task, *(["--compare"] if compare else []), str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def is_right(name: str, path: Path, task: str, expected: np.ndarray) -> bool:
    means = np.array(measure(name, path, task, compare=True)["means"])
    return means.shape == expected.shape and bool(np.abs(means - expected).max() <= SAME)


def compete(path: Path, task: str, rounds: int, names: list[str]) -> dict[str, float]:
    """Best CPU seconds of each reader; those that return other frames than ours are left out, except the floor."""
    expected = np.array(measure("clipmill auto", path, task, compare=True)["means"])
    right = {name: name == "ffmpeg null" or is_right(name, path, task, expected) for name in names}
    # Rounds go over all readers, so that a busy minute of the machine strikes all of them.
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            times[name].append(float(str(measure(name, path, task, compare=False)["seconds"])))
    for name in names:
        print(f"{task:5} {name:18} {min(times[name]):7.3f} s CPU{'' if right[name] else '   wrong frames'}")
    return {name: min(times[name]) for name in names if right[name]}


def generate(path: Path, seconds: int) -> None:
    """A moving, noisy square picture in H.264 with B-frames, as most material is."""
    source = f"testsrc2=size=480x480:rate=25:duration={seconds},noise=alls=12:allf=t"
    encode = ["-c:v", "libx264", "-preset", "medium", "-crf", "26", "-pix_fmt", "yuv420p"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", "-f", "lavfi", "-i", source, *encode, str(path)]
    subprocess.run(command, check=True)


def unusable() -> dict[str, str]:
    """Peers that this machine cannot run, and why: torchcodec needs shared libraries of ffmpeg."""
    done = subprocess.run([sys.executable, "-c", "import torchcodec.decoders"], capture_output=True, text=True)
    return {"torchcodec": done.stderr.strip().splitlines()[-1]} if done.returncode else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, help="a video of constant rate; default: one is generated")
    parser.add_argument("--quick", action="store_true", help="20 seconds of video and one round, for a first look")
    parser.add_argument("--work", choices=list(READERS), help=argparse.SUPPRESS)
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--compare", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.file, arguments.task, arguments.compare)
        return
    missing = unusable()
    names = [name for name in READERS if name not in missing]
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.file or Path(folder) / "generated.mp4"
        if arguments.file is None:
            generate(path, 20 if arguments.quick else 60)
        results = {task: compete(path, task, 1 if arguments.quick else 7, names) for task in TASKS}
    ratios = {}
    for task, times in results.items():
        peers = {
            name: time for name, time in times.items() if not name.startswith("clipmill") and name != "ffmpeg null"
        }
        best = min(peers, key=lambda name: peers[name])
        ratios[task] = peers[best] / times["clipmill auto"]
        print(f"{task:5} ours {ratios[task]:.2f} of the best competitor, {best}")
    ratio = min(ratios.values())
    summary = {"name": "decode", "ratio": round(ratio, 3), "goal": GOAL, "met": ratio >= GOAL, "ratios": ratios}
    print(json.dumps({**summary, "seconds": results, "not_usable": missing}))


if __name__ == "__main__":
    main()
