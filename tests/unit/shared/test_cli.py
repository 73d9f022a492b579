"""Exit codes of both command lines."""

from __future__ import annotations

import pytest
import typer

from shared.cli import guarded, run_app
from shared.errors import (
    DamageFound,
    EnvironmentLacking,
    InputFileError,
    RequestError,
    RunFailed,
    StoppedEarly,
    StoreError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DamageFound, 1),
        (RequestError, 2),
        (InputFileError, 2),
        (StoreError, 2),
        (EnvironmentLacking, 3),
        (StoppedEarly, 4),
        (RunFailed, 5),
    ],
)
def test_each_error_ends_with_its_code_and_one_line(capsys, error, code):
    def fail():
        raise error("what, why, what next")

    assert guarded(fail) == code
    assert capsys.readouterr().err == "error: what, why, what next\n"


def test_success_and_bugs(capsys):
    assert guarded(lambda: None) == 0
    with pytest.raises(ZeroDivisionError):
        guarded(lambda: 1 / 0)


def app_that(action) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(action)
    return app


@pytest.mark.parametrize(
    ("raised", "code"), [(KeyboardInterrupt(), 4), (typer.Exit(1), 1), (StoreError("no store"), 2), (None, 0)]
)
def test_codes_through_typer(monkeypatch, capsys, raised, code):
    def command() -> None:
        if raised is not None:
            raise raised

    monkeypatch.setattr("sys.argv", ["clipmill"])
    with pytest.raises(SystemExit) as ended:
        run_app(app_that(command))
    assert (ended.value.code or 0) == code
    if code == 4:
        assert "run the same command again" in capsys.readouterr().err


def test_a_path_that_is_too_long_is_a_wrong_request_and_other_faults_stay_visible(capsys, tmp_path):
    assert guarded(lambda: (tmp_path / ("x" * 300)).read_bytes()) == 2
    assert "longer than a path may be" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError):
        guarded(lambda: (tmp_path / "none").read_bytes())


def test_a_path_that_may_not_be_used_is_named(capsys, tmp_path):
    def denied(name):
        raise PermissionError(13, "Permission denied", name)

    assert guarded(lambda: denied(str(tmp_path / "a"))) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'a'} may not be read or written: give this user")
    with pytest.raises(PermissionError):
        guarded(lambda: denied(None))
