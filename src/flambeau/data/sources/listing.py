"""Files that a URL refers to: itself, those below a directory, or the matches of a glob."""

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau.data.sources.urls import (
    file_name,
    file_system,
    require_known_protocol,
    shown,
    transferring,
)
from flambeau.errors import DataError


def files_at(url: str, suffixes: Sequence[str]) -> list[tuple[str, int | None]]:
    """Return the URLs of all files meant by `url`, sorted, with their sizes if known.

    Directories are searched for names that end in one of `suffixes`. Names that start with `_` or
    `.` are left out in directories and in the matches of a glob.
    """
    require_known_protocol(url)
    first, chain, rest = url.partition("::")
    if chain and "://" not in first:  # a cache in front of another URL
        return [(f"{first}::{inner}", size) for inner, size in files_at(rest, suffixes)]
    system, path = file_system(url)
    with transferring(url):
        system.invalidate_cache()
        found = list(_found(system, url, path, suffixes))
    prefix = _prefix(system, first, path)
    return sorted((f"{prefix}{each['name']}{chain}{rest}", each.get("size")) for each in found)


def _found(system: Any, url: str, path: str, suffixes: Sequence[str]) -> Iterator[dict[str, Any]]:
    if _has_magic(url):
        matches = [each for each in _details(system.glob(path, detail=True)) if _is_data(each)]
        if not matches:
            raise DataError(f"no file matches {shown(url)!r}")
        for match in matches:
            yield from _below(system, match["name"], suffixes) if _is_folder(match) else [match]
        return
    info = {"type": "directory"} if url.endswith("/") else system.info(path)
    if not _is_folder(info):
        yield {**info, "name": path}
        return
    below = list(_below(system, f"{path.rstrip('/')}/", suffixes))
    if not below:
        raise DataError(f"directory {shown(url)!r} holds no files {' or '.join(suffixes)}")
    yield from below


def _below(system: Any, directory: str, suffixes: Sequence[str]) -> Iterator[dict[str, Any]]:
    for each in _details(system.find(directory, detail=True)):
        if _is_data(each) and file_name(each["name"]).lower().endswith(tuple(suffixes)):
            yield each


def _details(found: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return ({**info, "name": name} for name, info in found.items())


def _is_folder(info: dict[str, Any]) -> bool:
    return info.get("type") == "directory"


def _is_data(info: dict[str, Any]) -> bool:
    return not file_name(info["name"]).startswith(("_", "."))


def _has_magic(url: str) -> bool:
    """Return whether it is a glob; a question mark in a web address begins its query string."""
    first = url.partition("::")[0]
    if first.startswith(("http://", "https://")):
        return any(sign in first.partition("?")[0] for sign in "*[")
    return any(sign in first for sign in "*?[")


def _prefix(system: Any, url: str, path: str) -> str:
    """Return the prefix that makes URLs of the file system's paths: protocol and host."""
    if not path.strip("/"):
        return f"{url.partition('://')[0]}://"
    url, path = url.rstrip("/"), path.rstrip("/")
    if url.endswith(path):
        return url[: len(url) - len(path)]
    return str(system.unstrip_protocol(path))[: -len(path)]
