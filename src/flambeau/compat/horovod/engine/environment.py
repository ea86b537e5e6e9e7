"""Settings that Horovod reads from the environment, under its names."""

import os
from dataclasses import dataclass

from flambeau.errors import ConfigError


@dataclass(frozen=True)
class HorovodSettings:
    """What the environment says; the defaults are Horovod's."""

    #: Small tensors are summed together up to so many bytes.
    fusion_bytes: int = 64 << 20
    #: Names agreed before that are kept.
    cache_capacity: int = 1024
    #: After so long an operation that not all ranks have requested is reported; 0: never.
    stall_seconds: float = 60.0
    #: A file for the timeline of operations.
    timeline: str = ""
    #: How long ranks wait for each other in `init`.
    start_seconds: float = 600.0


def horovod_settings() -> HorovodSettings:
    """Return the settings of this process."""
    off = os.environ.get("HOROVOD_STALL_CHECK_DISABLE") in ("1", "true")
    timeline = os.environ.get("HOROVOD_TIMELINE", "")
    return HorovodSettings(
        fusion_bytes=int(_number("HOROVOD_FUSION_THRESHOLD", HorovodSettings.fusion_bytes)),
        cache_capacity=int(_number("HOROVOD_CACHE_CAPACITY", HorovodSettings.cache_capacity)),
        stall_seconds=0.0 if off else _number("HOROVOD_STALL_CHECK_TIME_SECONDS", 60.0),
        timeline="" if timeline == "DYNAMIC" else timeline,  # that is, when a script starts it
        start_seconds=_number("HOROVOD_START_TIMEOUT", HorovodSettings.start_seconds),
    )


def own_ranks() -> dict[str, int]:
    """Return what Horovod's launcher says of this process, such as `local_rank`."""
    if "HOROVOD_RANK" not in os.environ or "RANK" in os.environ:
        return {}
    names = ("local_rank", "local_size", "cross_rank", "cross_size")
    found = {name: f"HOROVOD_{name.upper()}" for name in names}
    return {name: int(_number(key, 0)) for name, key in found.items() if key in os.environ}


def without_address() -> bool:
    """Return whether the roles of `fb.run` have started this process: no address is announced."""
    return "MASTER_ADDR" not in os.environ


def interface() -> str | None:
    """Return the network interface that gloo is to use."""
    return os.environ.get("GLOO_SOCKET_IFNAME")


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise ConfigError(f"{name}={text!r} is not a number") from None
