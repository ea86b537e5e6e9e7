"""A command that runs on all hosts at once, and ends everywhere when this process ends."""

import asyncio
import codecs
import shlex
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from flambeau.clusters.ssh.connection import AT_ONCE, SshProgram
from flambeau.clusters.ssh.problems import SSH_FAILED, Problem
from flambeau.clusters.ssh.remote_script import LOADER, script_input

#: Runs a command in its own session. When the input ends, since ssh has ended, the command and all
#: its child processes get SIGTERM, and SIGKILL five seconds later.
_WITH_LIFELINE = """\
exec 3<&0 </dev/null
cd {folder} || exit
if command -v setsid >/dev/null 2>&1; then
  setsid "${{SHELL:-/bin/sh}}" -c {command} 3<&- &
else
  set -m; "${{SHELL:-/bin/sh}}" -c {command} 3<&- &
fi
pid=$!
(
  cat <&3
  trap '' TERM
  kill -TERM -$pid
  for second in 1 2 3 4 5; do sleep 1; kill -0 -$pid || exit; done
  kill -KILL -$pid
) >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait $pid
code=$?
kill $watcher 2>/dev/null
exit $code
"""
#: How long hosts have to end their commands before ssh is killed.
_ENDING_SECONDS = 10.0
_PIECE = 1 << 16
#: How many of the last lines of standard error are searched for a known message.
_KEPT_LINES = 100

#: Called with a host, a line of output of its command, and whether that was on stderr.
Lines = Callable[[str, str, bool], None]


@final
@dataclass(frozen=True)
class Ended:
    """The end of a command on a host: its exit code, or why it could not be run."""

    host: str
    code: int
    problem: Problem | None = None


def run_on_all(
    ssh: SshProgram, hosts: Sequence[str], command: str, lines: Lines, *, folder: str = "."
) -> list[Ended]:
    """Run a shell command on all hosts at once; return its results, in the order in which they end.

    A relative `folder` starts at the home directory. The commands have no input. KeyboardInterrupt
    is raised after they have ended everywhere.
    """
    text = _WITH_LIFELINE.format(command=shlex.quote(command), folder=shlex.quote(folder))
    return asyncio.run(_run_on_all(ssh, hosts, script_input(text), lines))


async def _run_on_all(
    ssh: SshProgram, hosts: Sequence[str], script: bytes, lines: Lines
) -> list[Ended]:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(host: str) -> Ended:
        async with places:
            return await _run(ssh, host, script, lines)

    tasks = [asyncio.create_task(one(host)) for host in hosts]
    try:
        return [await task for task in asyncio.as_completed(tasks)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(ssh: SshProgram, host: str, script: bytes, lines: Lines) -> Ended:
    # Ctrl-C must only reach this process: ssh still has to pass on the last output of commands.
    process = await asyncio.create_subprocess_exec(
        *ssh.command(host, LOADER), stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    errors: list[str] = []

    def error_line(line: str) -> None:
        errors.append(line)
        del errors[:-_KEPT_LINES]
        lines(host, line, True)

    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(script)
    reading = asyncio.gather(
        _each_line(process.stdout, lambda line: lines(host, line, False)),
        _each_line(process.stderr, error_line),
    )
    try:
        await asyncio.shield(reading)
        await process.wait()
    finally:
        await _end(process, reading)
    assert process.returncode is not None
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    problem = ssh.explain(host, code, "\n".join(errors)) if code == SSH_FAILED else None
    return Ended(host, code, problem)


async def _end(process: Process, reading: asyncio.Future[Any]) -> None:
    """End the command on the host, if it still runs, and show its last output."""
    assert process.stdin is not None
    process.stdin.close()
    await asyncio.wait([reading], timeout=_ENDING_SECONDS)
    try:
        async with asyncio.timeout(_ENDING_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _each_line(stream: asyncio.StreamReader, show: Callable[[str], None]) -> None:
    decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
    while piece := await stream.read(_PIECE):
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        if len(rest) > _PIECE:
            lines, rest = [*lines, rest], ""
        for line in lines:
            show(line.removesuffix("\r"))
    if rest:
        show(rest)
