"""The live page of a run: a server on this machine that requires a token.

It polls the run's files, and does not change them.
"""

import hmac
import json
import secrets
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, final
from urllib.parse import parse_qs, urlsplit

from flambeau.reports.run_page import main_part, run_page
from flambeau.reports.run_view import RunView, open_run

#: Seconds between two reads of the files.
POLL_SECONDS = 1.0
#: Polls without news after which a line is sent, to detect closed connections.
_QUIET_LOOKS = 15
_LIVE = ("running", "starting")


@final
class LiveRuns:
    """The current state of runs, shared by any number of readers."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._views = [open_run(path) for path in paths]
        self._lock = threading.Lock()
        self._seen: list[tuple[Any, ...]] = []
        self._looked = 0.0
        self._content = ""

    def content(self) -> tuple[str, str]:
        """Return the part of the page that changes, and whether it is live, as a text."""
        with self._lock:
            if time.monotonic() - self._looked >= POLL_SECONDS:
                self._look()
            ended = all(view.status not in _LIVE for view in self._views)
            return self._content, "the run has ended" if ended else "live"

    def page(self) -> str:
        """Return the whole page."""
        with self._lock:
            return run_page(self._views, live=True)

    def _look(self) -> None:
        self._views = [open_run(view.directory.path, earlier=view) for view in self._views]
        seen = [_state_of(view) for view in self._views]
        if seen != self._seen:
            self._content, self._seen = main_part(self._views), seen
        self._looked = time.monotonic()


def _state_of(view: RunView) -> tuple[Any, ...]:
    """Return values that change whenever the run has news."""
    return view.history.offset, view.status, view.latest_time


@final
class LivePage(ThreadingHTTPServer):
    """An HTTP server of the page on loopback. Port 0 selects a free port."""

    daemon_threads = True

    def __init__(self, paths: Sequence[Path], port: int = 0) -> None:
        self.runs = LiveRuns(paths)
        self.token = secrets.token_urlsafe(24)
        self.closing = threading.Event()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Return the URL of the page, with the token."""
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"

    def server_close(self) -> None:
        """Close the port, and end the streams to readers."""
        self.closing.set()
        super().server_close()


@final
class _Handler(BaseHTTPRequestHandler):
    server: LivePage

    def do_GET(self) -> None:
        """Send the page, or a stream of its updates until the reader disconnects."""
        parts = urlsplit(self.path)
        given = parse_qs(parts.query).get("token", [""])[0]
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"This needs the URL with its token.")
        elif parts.path == "/":
            page = self.server.runs.page().encode("utf-8", "xmlcharrefreplace")
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", page)
        elif parts.path == "/events":
            self._send_news()
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"There is no such page.")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal is for the user, and paths contain the token."""

    def _answer(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self._begin(status, kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _begin(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")

    def _send_news(self) -> None:
        self._begin(HTTPStatus.OK, "text/event-stream")
        self.end_headers()
        known: tuple[str, str] | None = None
        quiet = 0
        while not self.server.closing.is_set():
            content = self.server.runs.content()
            if content != known:
                if known is None or content[0] != known[0]:
                    self._send("page", content[0])
                self._send("state", content[1])
                known, quiet = content, 0
            elif (quiet := quiet + 1) % _QUIET_LOOKS == 0:
                self.wfile.write(b":\n\n")
            self.server.closing.wait(POLL_SECONDS)

    def _send(self, kind: str, value: str) -> None:
        self.wfile.write(f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode())

    def handle(self) -> None:
        """Handle requests until the reader disconnects, which is not an error."""
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
