import gc
import subprocess
import sys
import threading
import weakref

import pytest

from shared.errors import DamageFound
from train.delivery.background import Background


@pytest.fixture
def background():
    made = Background("test")
    yield made
    made.close()


def test_answers_are_those_of_the_calls_begun_in_order(background):
    begun = []
    answers = [background.call(lambda n=n: begun.append(n) or n * n) for n in range(20)]
    assert [answer.get() for answer in answers] == [n * n for n in range(20)]
    assert begun == list(range(20))


def test_asking_does_not_wait_for_what_is_running(background):
    go_on = threading.Event()
    first, second = background.call(go_on.wait), background.call(lambda: "later")
    go_on.set()  # reached although the first call is not done
    assert first.get() is True
    assert second.get() == "later"


@pytest.mark.parametrize("error", [DamageFound("a shard"), KeyError("a bug"), KeyboardInterrupt()])
def test_what_a_call_raises_is_raised_by_its_answer_alone(background, error):
    def fail():
        raise error

    failed, fine = background.call(fail), background.call(lambda: 3)
    with pytest.raises(type(error)) as caught:
        failed.get()
    assert caught.value is error
    assert fine.get() == 3


def test_closing_waits_for_what_runs_and_drops_the_rest():
    background = Background("test")
    running, go_on = threading.Event(), threading.Event()

    def first():
        running.set()
        return go_on.wait()

    begun, dropped = background.call(first), background.call(lambda: "never")
    running.wait()
    threading.Timer(0.1, go_on.set).start()
    background.close()
    assert begun.get() is True
    with pytest.raises(RuntimeError, match="closed before"):
        dropped.get()
    with pytest.raises(RuntimeError, match="was closed"):
        background.call(lambda: "never")
    background.close()  # twice is once


def test_its_thread_ends_with_it():
    background = Background("forgotten")
    (thread,) = [thread for thread in threading.enumerate() if thread.name.startswith("forgotten")]
    del background
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_nothing_of_a_call_is_held_when_it_is_done(background):
    class Large:
        pass

    large = Large()
    gone = weakref.ref(large)
    background.call(lambda held=large: held is not None).get()
    del large
    background.call(lambda: None).get()  # the first call's thread has come round to the next
    gc.collect()
    assert gone() is None


def test_an_error_leaves_no_circle(background):
    class Large:
        def fail(self):
            raise DamageFound("a shard")

    large = Large()
    gone = weakref.ref(large)
    gc.disable()
    try:
        with pytest.raises(DamageFound):
            background.call(large.fail).get()
        del large
        background.call(lambda: None).get()
        assert gone() is None
    finally:
        gc.enable()


def test_a_program_that_closes_nothing_ends_by_itself():
    program = "from train.delivery.background import Background\nb = Background('open')\nprint(b.call(lambda: 5).get())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")
