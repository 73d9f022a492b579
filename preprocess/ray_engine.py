"""Everything Ray: actors that extract and write shards, tasks that decode for them, and the driver's side of both.

    driver ── units ──> ExtractActor (one a device) <── events ── decode tasks (killable)
       └── commits what actors finish, one at a time

An actor asks for its own decode tasks a few videos ahead and reads their events as a stream. Back-pressure is Ray's:
a decode task stops after a few unread blocks. A decoder that hangs is killed with its process; an actor that dies
costs its unit.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from preprocess.config import RayOptions
from preprocess.engine import Work, build_jobs, decode_order
from preprocess.extract.runtime import ComputeOutOfMemory
from preprocess.feed import Ended, Event, decode_packs
from preprocess.plan import Unit, UnitVideo
from preprocess.scratch import local_folder, sweep
from preprocess.shard import FinishedUnit, StreamJob, extract_unit
from shared.errors import ClipmillError, EnvironmentLacking, Failure, RunFailed

log = logging.getLogger("clipmill")

# A process or a host went away, perhaps with something that it had finished.
_LOST = (WorkerCrashedError, RayActorError, NodeDiedError, ObjectLostError, LocalRayletDiedError, OutOfMemoryError)
_START_TRIES = 2  # a decoder process that dies is started once more: another process may have been killed by mistake
_UNIT_TRIES = 3
# Of one decode task; it goes on while fewer lie unread. A short video, of one block, is decoded to its end before
# anyone reads it, and its CPU is free; of a long one, three blocks lie ready.
_UNREAD_PACKS = 4
_SWEEP_S = 30.0  # for workers that were killed to be gone, so that what they were writing can be deleted


class Extraction:
    """The actor's class: owns a device, extracts units and writes their shards into scratch."""

    def __init__(self, work: Work, options: RayOptions) -> None:
        self._work, self._options = work, options
        self._jobs: dict[str, StreamJob] = {}
        # A folder of its own: what an actor that died was writing is in nobody's way.
        self._scratch = work.scratch / str(ray.get_runtime_context().get_actor_id())

    def prepare(self) -> None:
        """Load the extractors: not in the constructor, whose errors Ray turns into the death of an actor."""
        self._jobs = build_jobs(self._work)

    def extract(self, unit: Unit) -> FinishedUnit:
        if self._options.scratch is None:
            return extract_unit(unit, self._jobs, self._feed, self._scratch)
        with local_folder(self._options.scratch, self._work.scratch) as local:
            return extract_unit(unit, self._jobs, self._feed, self._scratch, local)

    def _feed(self, videos: Sequence[UnitVideo]) -> Iterator[tuple[UnitVideo, Iterator[Event]]]:
        ahead: deque[_Decoding] = deque()
        waiting = deque(videos)
        while waiting or ahead:
            while waiting and len(ahead) <= (self._options.videos_ahead or 0):
                ahead.append(_Decoding(waiting.popleft(), self._jobs, self._work, self._options))
            decoding = ahead.popleft()
            yield decoding.video, decoding.events()


# The events of one file, from a process of its own that can be killed. Retries are ours: Ray's would repeat events.
_DECODE_TASK: Any = ray.remote(max_retries=0)(decode_packs)
_EXTRACT_ACTOR: Any = ray.remote(max_restarts=0)(Extraction)
_SWEEP_TASK: Any = ray.remote(max_retries=0, num_cpus=0)(sweep)


class _Decoding:
    """One video being decoded elsewhere: its stream of events, its deadline, its one retry."""

    def __init__(self, video: UnitVideo, jobs: dict[str, StreamJob], work: Work, options: RayOptions) -> None:
        self.video = video
        self._order = decode_order(video, jobs, work.decode)
        self._deadline = work.decode.timeout_s
        self._options = options
        self._stream = self._start()

    def events(self) -> Iterator[Event]:
        """Events in order, ending in Ended or a Failure whatever happens to the decoding process."""
        for tries_left in reversed(range(_START_TRIES)):
            try:
                yield from self._read()
                return
            except _LOST as error:
                if tries_left == 0:
                    yield Failure(
                        "decoder_died", "decode", f"the decoding process died {_START_TRIES} times: {error}"[:500]
                    )
                    return
                self._stream = self._start()

    def _start(self) -> Any:
        options = {"num_cpus": self._options.decode_cpus, "_generator_backpressure_num_objects": _UNREAD_PACKS}
        return _DECODE_TASK.options(**options).remote(self._order)

    def _read(self) -> Iterator[Event]:
        """The clock runs while we wait for a task that has begun: neither its queue nor our own work counts."""
        waited = 0.0
        started = False
        while True:
            timeout = self._deadline - waited if started else None
            before = time.monotonic()
            ready, _ = ray.wait([self._stream], timeout=timeout, fetch_local=True)
            if not ready:
                self._kill()
                yield Failure("timeout", "decode", f"not decoded within {self._deadline:g} s; the process was killed")
                return
            if started:
                waited += time.monotonic() - before
            pack = _next_pack(self._stream)
            started = True
            yield from pack
            if isinstance(pack[-1], (Ended, Failure)):
                return

    def _kill(self) -> None:
        ray.cancel(self._stream, force=True)


def _next_pack(stream: Any) -> list[Event]:
    pack: list[Event] = ray.get(next(stream))
    return pack


def run_units(work: Work, units: Sequence[Unit], options: RayOptions) -> Generator[FinishedUnit]:
    """Do the units on a Ray cluster (a local one unless `options.address` names another) and yield each when done.

    Raises EnvironmentLacking where no cluster can be reached, RunFailed for a unit that keeps dying, and whatever
    ClipmillError a worker raised.
    """
    with _Cluster(options):
        yield from _run(work, units, options)


def _run(work: Work, units: Sequence[Unit], options: RayOptions) -> Iterator[FinishedUnit]:
    resource = "GPU" if work.device == "cuda" else "CPU"
    devices = int(ray.cluster_resources().get(resource, 0))
    if devices == 0:
        raise EnvironmentLacking(
            f"the Ray cluster has no {work.device} to extract on; set `device: cpu`, or add a host"
        )
    actors = min(len(units), options.actors or devices)
    pool = _Pool(work, units, _with_videos_ahead(options, actors, ray.cluster_resources().get("CPU", 0)))
    try:
        for _ in range(actors):
            pool.start_actor()
        yield from pool.results()
    finally:
        if options.scratch is not None:
            pool.kill()
            _sweep_hosts(options.scratch, work.scratch)


def _with_videos_ahead(options: RayOptions, actors: int, cpus: float) -> RayOptions:
    """Each actor's share of the CPUs, unless the config says a number: one GPU may need many decoders."""
    if options.videos_ahead is not None:
        return options
    return options.model_copy(update={"videos_ahead": max(1, round(cpus / options.decode_cpus / max(actors, 1)))})


def _sweep_hosts(scratch: Path, store: Path) -> None:
    """Delete what this run's workers, killed or lost, left on the disks of hosts that are still there."""
    sweeps = [
        _SWEEP_TASK.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
            scratch, store, _SWEEP_S
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    # A host that cannot do it now is swept by the next run's workers there.
    ray.wait(sweeps, num_returns=len(sweeps), timeout=2 * _SWEEP_S)


class _Pool:
    """Actors that are starting, at work or idle, and the units that wait for them.

    Units go to actors that have started: after the loss of a host, a new one may wait for a device for ever.
    """

    def __init__(self, work: Work, units: Sequence[Unit], options: RayOptions) -> None:
        self._work, self._options = work, options
        self._todo = deque((unit, 1) for unit in units)
        self._starting: dict[Any, Any] = {}
        self._running: dict[Any, tuple[Any, Unit, int]] = {}
        self._idle: list[Any] = []
        self._failed_starts = 0

    def start_actor(self) -> None:
        # Spread, because actors that need no CPU would all be put on the first host.
        needs = {"num_gpus": 1} if self._work.device == "cuda" else {"scheduling_strategy": "SPREAD"}
        actor = _EXTRACT_ACTOR.options(num_cpus=0, **needs).remote(self._work, self._options)
        self._starting[actor.prepare.remote()] = actor

    def kill(self) -> None:
        """End every worker, whatever it is doing."""
        for actor in [*self._starting.values(), *(actor for actor, _, _ in self._running.values()), *self._idle]:
            ray.kill(actor)

    def results(self) -> Iterator[FinishedUnit]:
        """Finished units in whatever order; ends when all are."""
        while self._todo or self._running:
            while self._todo and self._idle:
                unit, tries = self._todo.popleft()
                actor = self._idle.pop()
                self._running[actor.extract.remote(unit)] = (actor, unit, tries)
            (ready,), _ = ray.wait([*self._running, *self._starting], num_returns=1)
            if ready in self._starting:
                self._started(ready, self._starting.pop(ready))
            else:
                finished = self._finished(ready, *self._running.pop(ready))
                if finished is not None:
                    yield finished

    def _started(self, call: Any, actor: Any) -> None:
        try:
            ray.get(call)
        except _LOST as error:
            self._failed_starts += 1
            if self._failed_starts == _UNIT_TRIES:
                raise RunFailed(f"extraction workers died {_UNIT_TRIES} times while they started: {error}") from None
            log.warning("a worker died while it started; starting another")
            self.start_actor()
        except RayTaskError as error:
            raise _cause(error) from None
        else:
            self._idle.append(actor)

    def _finished(self, call: Any, actor: Any, unit: Unit, tries: int) -> FinishedUnit | None:
        try:
            finished: FinishedUnit = ray.get(call)
        except _LOST as error:
            if tries == _UNIT_TRIES:
                raise RunFailed(f"unit {unit.number} killed its worker {_UNIT_TRIES} times: {error}") from None
            log.warning("a worker died in unit %d; doing the unit again on another", unit.number)
            ray.kill(actor)  # it may only be out of reach
            self._todo.appendleft((unit, tries + 1))
            self.start_actor()
            return None
        except RayTaskError as error:
            raise _cause(error) from None
        self._idle.append(actor)
        return finished


def _cause(error: RayTaskError) -> Exception:
    """What the worker raised: what the caller can act on as itself, anything else with the worker's traceback."""
    return error.cause if isinstance(error.cause, (ClipmillError, ComputeOutOfMemory)) else error


class _Cluster:
    """Connected to Ray for the block."""

    def __init__(self, options: RayOptions) -> None:
        self._options = options

    def __enter__(self) -> None:
        local = {} if self._options.address else {
            "num_cpus": self._options.cpus,
            "object_store_memory": self._options.object_store_mib * 2**20,
            "include_dashboard": False,
        }  # fmt: skip
        _check_reachable(self._options.address)
        # Ray's own handler would abort the process on SIGTERM, between its start and the line after `init`.
        os.environ["RAY_DISABLE_FAILURE_SIGNAL_HANDLER"] = "1"
        on_sigterm = signal.getsignal(signal.SIGTERM)
        try:
            # "local": without an address Ray would join any cluster that happens to run on this machine.
            address = self._options.address or "local"
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
        except ConnectionError as error:
            raise EnvironmentLacking(
                f"no Ray cluster at {self._options.address!r}: {error}; start one with `ray start --head`, "
                "or leave `ray.address` out to use this machine"
            ) from None

        signal.signal(signal.SIGTERM, on_sigterm)

    def __exit__(self, *_: object) -> None:
        ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Ray itself would try for minutes. Addresses without a port, such as `auto`, are left to it."""
    host, _, port = (address or "").rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.rpartition("//")[2].strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise EnvironmentLacking(
            f"no Ray cluster at {address!r}: {error}; start one with `ray start --head`, "
            "or leave `ray.address` out to use this machine"
        ) from None
