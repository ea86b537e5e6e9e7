import os
import signal
import threading

from flambeau.job.signals import Signals


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
