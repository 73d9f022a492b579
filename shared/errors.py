"""The errors people see, and the exit code of each.

    ClipmillError
    ├── DamageFound         1   done, but damage was found (listed)
    ├── RequestError        2   the request is wrong: a bad key, a missing file, two settings that exclude each other
    │   ├── InputFileError      an input manifest, a caption file, a vocabulary cannot be used as it is
    │   └── StoreError          the store cannot be used as it is (version, lease, missing set)
    ├── EnvironmentLacking  3   weights, a program or a device are absent: what, and how to get it
    ├── StoppedEarly        4   a signal, a preemption, a full disk: run the same command again
    └── RunFailed           5   stopped by the run itself: non-finite loss, lost rank

A message says what, the value, what was expected and the next action. A bad *sample* is not an exception: it is a
`Failure` value that ends in the store's records. A bug raises whatever it raises, with its traceback.
"""

from __future__ import annotations

from dataclasses import dataclass


class ClipmillError(Exception):
    """Base of every error that is shown without a traceback. `exit_code` is what the process ends with."""

    exit_code = 2


class DamageFound(ClipmillError):
    exit_code = 1


class RequestError(ClipmillError):
    exit_code = 2


class InputFileError(RequestError):
    pass


class StoreError(RequestError):
    pass


class EnvironmentLacking(ClipmillError):
    exit_code = 3


class StoppedEarly(ClipmillError):
    exit_code = 4


class RunFailed(ClipmillError):
    exit_code = 5


@dataclass(frozen=True)
class Failure:
    """Why one input yielded nothing: a value to record, not an exception.

    reason: a fixed word of the stage (`corrupt`, `timeout`, ...), the key that `failures` groups by.
    stage: `input`, `decode`, `extract`, `captions` or `split`.
    message: one line for people.
    """

    reason: str
    stage: str
    message: str
