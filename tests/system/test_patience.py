"""Waiting for what may hang: an answer, an exception, a time-out, and the threads that are left behind."""

from __future__ import annotations

import contextvars
import threading

import pytest

from school.system.patience import Crowded, Failed, Patience, TookTooLong


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "patience-test"]


def test_an_answer_comes_back_from_a_daemonic_thread_of_its_own() -> None:
    patience = Patience(name="patience-test")
    thread = patience.call(threading.current_thread, timeout_s=5)
    assert thread is not threading.current_thread()
    assert thread.daemon
    assert patience.call(threading.current_thread, timeout_s=5) is thread
    patience.close()
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize("cause", [ValueError("x"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_is_raised_comes_back_as_failed(cause: BaseException) -> None:
    def fail() -> None:
        raise cause

    patience = Patience()
    with pytest.raises(Failed) as failed:
        patience.call(fail, timeout_s=5)
    assert failed.value.cause is cause
    assert patience.call(lambda: 4, timeout_s=5) == 4
    patience.close()


def test_the_context_of_the_caller_is_seen() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="")
    name.set("session-1")
    patience = Patience()
    assert patience.call(name.get, timeout_s=5) == "session-1"
    patience.close()


def test_abandoned_calls_are_bounded_and_forgotten_once_they_come_back() -> None:
    go = threading.Event()
    patience = Patience(abandoned_max=2, name="patience-test")
    for _ in range(2):
        with pytest.raises(TookTooLong):
            patience.call(go.wait, timeout_s=0.01)
    assert patience.abandoned == 2
    with pytest.raises(Crowded):
        patience.call(lambda: 1, timeout_s=5)
    left = [thread for thread in threading.enumerate() if thread.name == "patience-test"]
    assert len(left) == 2
    go.set()
    for thread in left:
        thread.join(5)
    assert patience.abandoned == 0
    assert patience.call(lambda: 1, timeout_s=5) == 1
    patience.close()


def test_a_call_within_a_call_gets_another_thread() -> None:
    patience = Patience()
    assert patience.call(lambda: patience.call(lambda: 7, timeout_s=5), timeout_s=5) == 7
    patience.close()


def test_many_callers_at_once_each_get_their_own_answer() -> None:
    patience = Patience(name="patience-test")
    got: dict[int, int] = {}

    def caller(number: int) -> None:
        for _ in range(50):
            got[number] = patience.call(lambda: number, timeout_s=5)
            assert got[number] == number

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {number: number for number in range(8)}
    assert len(names()) <= 4  # the idle ones that are kept
    patience.close()


def test_after_close_nothing_is_run() -> None:
    patience = Patience()
    patience.close()
    with pytest.raises(Crowded):
        patience.call(lambda: 1, timeout_s=5)
