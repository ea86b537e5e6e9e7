"""A real Chromium without a window, driven over pipes with its DevTools protocol."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REMEDY = "make chromium as root, or: apt-get install chromium"
#: Seconds until an answer is missed.
PATIENCE = 60


def chromium() -> str | None:
    """Return the program, if this machine has it."""
    return shutil.which("chromium") or shutil.which("google-chrome")


class Tab:
    """A page in the browser, with all that it has asked for and complained of."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser, self._session = browser, session
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def send(self, method: str, **params: Any) -> Any:
        """Send a command, and return its result."""
        return self._browser.send(method, self._session, **params)

    def open(self, url: str) -> None:
        """Show a page, and return when it has been loaded."""
        self.send("Page.navigate", url=url)
        self._browser.wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page; promises are waited for."""
        given = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", **given)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_until(self, condition: str) -> None:
        """Return when an expression has become true, however the page changes."""
        assert self.evaluate(
            f"""new Promise(done => {{
              const look = () => {{ if ({condition}) {{ observer.disconnect(); done(true); }} }};
              const observer = new MutationObserver(look);
              observer.observe(document, {{subtree: true, childList: true, characterData: true}});
              look();
            }})"""
        )

    def look(self, *, dark: bool = False, width: int = 1200) -> None:
        """Show pages light or dark, as wide as a phone or a screen."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def save_picture(self, path: Path) -> None:
        """Save what the whole page looks like as a PNG."""
        found = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def note(self, method: str, params: dict[str, Any]) -> None:
        """Note requests, errors and messages."""
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")


class Browser:
    """The process, and its two pipes: messages are JSON, and end with a zero byte."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb")
        self._number, self._rest = 0, b""
        self._tabs: dict[str, Tab] = {}

    def new_tab(self) -> Tab:
        """Open an empty page."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.send(f"{domain}.enable")
        return tab

    def send(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Send a command, and return its result; events in between are noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def wait_for(self, method: str) -> None:
        """Return when an event has come."""
        while self._receive().get("method") != method:
            continue

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._answers.fileno(), 1 << 16)
            assert piece, "the browser has ended"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        tab = self._tabs.get(message.get("sessionId", ""))
        if tab is not None and "method" in message:
            tab.note(message["method"], message["params"])
        return message

    def close(self) -> None:
        """End the browser, which removes its temporary files, and close the pipes."""
        self.send("Browser.close")
        self._commands.close()
        self._answers.close()


@contextmanager
def open_browser(profile: Path) -> Iterator[Browser]:
    """Start Chromium with an empty profile, and end it."""
    program = chromium()
    assert program is not None
    # The browser reads from descriptor 3 and writes to 4; the shell puts the pipes there.
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    place = f"--user-data-dir={profile}"
    script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    command = [program, "--remote-debugging-pipe", *options, *quiet, place, "about:blank"]
    # It makes a socket there; names in folders of tests may be too long for one.
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as temporary:
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": temporary},
        )
        os.close(theirs_in)
        os.close(theirs_out)
        browser = Browser(ours_out, ours_in)
        try:
            yield browser
        finally:
            try:
                browser.close()
                process.wait(PATIENCE)
            finally:
                process.kill()
                process.wait()
