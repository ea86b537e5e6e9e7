import os
import signal
import threading

from flambeau.driver.control.signals import Signals, Wish


def test_signals_are_counted_and_end_nothing() -> None:
    signals = Signals()
    with signals.caught():
        assert (signals.count, signals.last) == (0, None)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert (signals.count, signals.last) == (2, signal.SIGTERM)


def test_afterwards_they_do_what_they_did_before() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Signals().caught():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_in_another_thread_signals_are_left_alone() -> None:
    seen = []

    def run() -> None:
        with Signals().caught():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


def test_the_first_signal_asks_to_stop_and_the_second_to_end() -> None:
    signals = Signals()
    assert signals.wish(0.0, grace_seconds=10.0) is Wish.NONE
    with signals.caught():
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.wish(1.0, grace_seconds=10.0) is Wish.STOP
        assert signals.wish(2.0, grace_seconds=10.0) is Wish.NONE
        os.kill(os.getpid(), signal.SIGINT)
    assert signals.wish(3.0, grace_seconds=10.0) is Wish.END


def test_one_signal_asks_to_end_after_the_time_of_grace() -> None:
    signals = Signals()
    with signals.caught():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signals.wish(1.0, grace_seconds=10.0) is Wish.STOP
    assert signals.wish(10.5, grace_seconds=10.0) is Wish.NONE
    assert signals.wish(11.5, grace_seconds=10.0) is Wish.END
