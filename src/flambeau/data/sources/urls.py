"""Remote files by URL: their file systems and the errors of these.

fsspec provides the file systems. Each has its own exceptions, and some put credentials into texts.
It is loaded when the first URL is opened, since most jobs have none.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau.config.settings import nearest
from flambeau.errors import DataError, MissingDependencyError, UserError

_PROTOCOL = r"[A-Za-z][A-Za-z0-9+.-]*"
_URL = re.compile(rf"(?:{_PROTOCOL}::)*{_PROTOCOL}://")
_LOCAL = re.compile(r"(?:file|local)://(?=/)")
_LOGIN = re.compile(rf"({_PROTOCOL}://)[^/\s]+@")
_QUERY = re.compile(rf"({_PROTOCOL}://[^\s?'\"]*)\?[^\s'\"]*=[^\s'\"]*")


def is_url(path: str) -> bool:
    """Return whether it is a URL, and not just another form of a local path."""
    return bool(_URL.match(path)) and not _LOCAL.match(path)


def local_path(path: str) -> str:
    """Return the path in a `file://` URL; anything else unchanged."""
    return _LOCAL.sub("", path)


def shown(text: str) -> str:
    """Return `text` for messages, without logins and query strings (signatures) of URLs in it."""
    return _QUERY.sub(r"\1?...", _LOGIN.sub(r"\1...@", text))


def file_name(path: str) -> str:
    """Return the last part of a path or URL, without a query string."""
    name = path.partition("::")[0] if "://" in path.partition("::")[0] else path
    if name.startswith(("http://", "https://")):
        name = name.partition("?")[0].partition("#")[0]
    return name.rstrip("/").rpartition("/")[2]


def file_system(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the file's path in it."""
    from fsspec.core import url_to_fs

    require_known_protocol(url)
    try:
        with transferring(url):
            found: tuple[Any, str] = url_to_fs(url)
            return found
    except ImportError as error:
        package = getattr(error.__cause__ or error, "name", None)
        install = f" (pip install {package})" if package else ""
        raise MissingDependencyError(
            f"{shown(url)} cannot be opened: a package is missing{install}: {error}"
        ) from error


def require_known_protocol(url: str) -> None:
    """Raise `DataError` if fsspec has no file system for the protocol."""
    from fsspec import available_protocols

    known = available_protocols()
    for part in url.split("::"):
        protocol = part.partition("://")[0]
        if protocol not in known:
            raise DataError(
                f"{shown(url)} has an unknown protocol {protocol!r}; {nearest(protocol, known)}"
            )


@contextmanager
def transferring(url: str, done: str = "read") -> Iterator[None]:
    """Turn any error of a file system into a `DataError` with the URL and the reason."""
    try:
        yield
    except (UserError, ImportError):
        raise
    except Exception as error:
        message = f"{shown(url)} cannot be {done}: {shown(_reason(error))}"
        if shown(url) != url:
            raise DataError(message) from None  # its texts may contain the credentials
        raise DataError(message) from error


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        # The HTTP file system reports unreachable servers like this, too, and keeps the cause.
        return str(error.__cause__ or "") or "there is no such file"
    return next(iter(str(error).splitlines()), "") or type(error).__name__
