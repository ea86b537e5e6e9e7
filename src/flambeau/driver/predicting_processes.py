"""Processes that predict the parts of a source, each taking the next one when it is done."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, final

import cloudpickle

from flambeau import errors
from flambeau.clusters.cores import plan_cores
from flambeau.errors import UserError, WorkerFailedError, WorkerLostError
from flambeau.inference.parts import Part

WORKER = "flambeau.roles.predicting_worker"


def predict_in_processes(
    payload: Mapping[str, Any], parts: Sequence[Part], workers: int, on_rows: Callable[[int], None]
) -> None:
    """Predict all parts; the first failure ends everything, and is raised."""
    waiting: queue.SimpleQueue[Part] = queue.SimpleQueue()
    for part in parts:
        waiting.put(part)
    told = _Teller(on_rows)
    # Started by this thread: the kernel ends them when the one that started them ends.
    running = [_Process(payload, threads) for _, threads in plan_cores(workers, None)]
    try:
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(_drive, process, waiting, told) for process in running]
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            except BaseException:
                for process in running:
                    process.kill()
                raise
    finally:
        for process in running:
            process.close()


@final
class _Teller:
    """Passes numbers of rows on, from one thread at a time."""

    def __init__(self, on_rows: Callable[[int], None]) -> None:
        self._on_rows, self._lock = on_rows, threading.Lock()

    def __call__(self, rows: int) -> None:
        with self._lock:
            self._on_rows(rows)


def _drive(process: "_Process", waiting: "queue.SimpleQueue[Part]", told: _Teller) -> None:
    """Give a process parts until none is left."""
    while True:
        try:
            part = waiting.get_nowait()
        except queue.Empty:
            return
        process.predict(part, told)


@final
class _Process:
    """One process. It reads parts from its stdin, and ends itself when that ends."""

    def __init__(self, payload: Mapping[str, Any], threads: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            # Ctrl-C is for the process that was started by hand; it ends these.
            start_new_session=True,
        )
        self._send(json.dumps(sys.path).encode())
        self._send(cloudpickle.dumps(dict(payload)))

    def predict(self, part: Part, told: Callable[[int], None]) -> None:
        """Have one part predicted, and wait for it."""
        self._send(cloudpickle.dumps(part))
        while True:
            said = self._answer()
            if "rows" in said:
                told(said["rows"])
            elif "error" in said:
                raise _as_raised(said)
            else:
                return

    def kill(self) -> None:
        """End it now."""
        self._process.kill()

    def close(self) -> None:
        """Let it end, and wait for that."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(len(message).to_bytes(8, "little") + message)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._lost() from None

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._lost()
        said: dict[str, Any] = json.loads(line)
        return said

    def _lost(self) -> WorkerLostError:
        code = self._process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return WorkerLostError(
            f"a process that predicts {how}; give the same command again to go on"
        )


def _as_raised(said: Mapping[str, Any]) -> Exception:
    kind = getattr(errors, said["error"], None)
    if isinstance(kind, type) and issubclass(kind, UserError | errors.CheckpointError):
        return kind(said["message"])
    return WorkerFailedError(f"a process that predicts failed: {said['message']}", said["trace"])
