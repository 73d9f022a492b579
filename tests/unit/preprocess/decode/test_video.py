import pickle

import pytest

from preprocess.decode.video import DecodeFailure, fail, scaled_size


@pytest.mark.parametrize(
    ("size", "short_side", "expected"),
    [
        ((1920, 1080), 224, (398, 224)),
        ((1080, 1920), 224, (224, 398)),
        ((321, 241), 64, (85, 64)),
        ((320, 180), 180, (320, 180)),
        ((320, 180), 500, (320, 180)),
        ((320, 180), None, (320, 180)),
        ((5, 2), 1, (3, 1)),
        ((4000, 1), 1, (4000, 1)),
    ],
)
def test_scaling_keeps_the_aspect_and_never_enlarges(size, short_side, expected):
    assert scaled_size(*size, short_side) == expected


def test_a_failure_survives_the_way_between_processes():
    with pytest.raises(DecodeFailure) as caught:
        fail("truncated", "video.mp4 ends early")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.failure == caught.value.failure
    assert copy.failure.reason == "truncated"
    assert str(copy) == "truncated: video.mp4 ends early"
