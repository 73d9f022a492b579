import gc
import os
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
    with pytest.raises(RuntimeError, match="has ended"):
        background.call(lambda: "never")
    background.close()  # twice is once


def test_its_thread_ends_with_it():
    background = Background("forgotten")
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "forgotten"]
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


def run(program: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_a_program_that_closes_nothing_ends_when_its_running_call_does():
    program = """
import time
from train.delivery.background import Background
background = Background("open")
print(background.call(lambda: 5).get())
background.call(lambda: time.sleep(0.1))
for _ in range(1000):
    background.call(lambda: time.sleep(10))
"""
    assert run(program) == (0, "5\n", "")


def test_another_thread_goes_on_when_the_main_one_has_ended():
    program = """
import threading
from train.delivery.background import Background

def work(main):
    main.join()
    background = Background("late")
    print([background.call(lambda: n * n).get() for n in range(3)])
    background.close()

threading.Thread(target=work, args=(threading.main_thread(),)).start()
"""
    assert run(program) == (0, "[0, 1, 4]\n", "")


def test_a_fork_is_refused_and_ends_nothing(background):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            background.call(lambda: None)
        except RuntimeError as error:
            os.write(writing, str(error).encode())
        background.close()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        assert f"is that of process {os.getpid()}, of which {child} is a fork" in answer.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    assert background.call(lambda: 7).get() == 7
