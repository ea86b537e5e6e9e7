"""A web server for tests that read files over HTTP."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class FileServer(ThreadingHTTPServer):
    """Serves `files` (bytes by name) on 127.0.0.1, with ranges and with listings of folders.

    A name in `broken` gets half of the bytes that its answers announce. `asked` are the names and
    ranges of the requests so far.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.broken: set[str] = set()
        self.ranges = True
        self.asked: list[tuple[str, str | None]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FileServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _answer(self, *, body: bool) -> None:
        name = self.path.partition("?")[0].lstrip("/")
        wanted = self.headers.get("Range")
        self.server.asked.append((name, wanted))
        data = self._listing(name) if name.endswith("/") else self.server.files.get(name)
        if data is None:
            self.send_error(404)
            return
        first, last = 0, len(data) - 1
        if wanted is not None and self.server.ranges:
            first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        else:
            self.send_response(200)
        part = data[first : last + 1]
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if body and name in self.server.broken:
            self.wfile.write(part[: len(part) // 2])
            self.close_connection = True
        elif body:
            self.wfile.write(part)

    def _listing(self, folder: str) -> bytes:
        names = (name for name in self.server.files if name.startswith(folder))
        return "".join(f'<a href="/{name}">{name}</a>\n' for name in names).encode()


@pytest.fixture
def file_server() -> Iterator[FileServer]:
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
