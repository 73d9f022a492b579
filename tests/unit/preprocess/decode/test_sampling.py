import pytest
from pydantic import ValidationError

from preprocess.decode.sampling import Sampling


@pytest.mark.parametrize(
    "settings",
    [
        {"fps": 0},
        {"fps": float("inf")},
        {"fps": -1},
        {"strategy": "dense", "frames": 0},
        {"strategy": "dense", "hop": 0},
        {"strategy": "middle"},
        {"strategy": "fps", "stride": 2},
    ],
)
def test_senseless_settings_are_refused(settings):
    with pytest.raises(ValidationError):
        Sampling(**settings)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"strategy": "fps", "frames": 16}, "frames=16"),
        ({"strategy": "uniform", "frames": 8, "fps": 2}, "fps=2"),
        ({"strategy": "uniform", "frames": 8, "hop": 1}, "hop=1"),
        ({"strategy": "keyframes", "fps": 2}, "fps=2"),
    ],
)
def test_settings_that_the_strategy_does_not_use_are_refused_by_name(settings, named):
    with pytest.raises(ValidationError, match=named):
        Sampling(**settings)


def test_clip_frames_is_the_length_of_a_row():
    assert Sampling(strategy="dense", fps=10, frames=16).clip_frames == 16
    assert Sampling(strategy="uniform", frames=16).clip_frames == 1
    assert Sampling().clip_frames == 1
