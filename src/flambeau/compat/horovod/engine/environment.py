"""Settings that Horovod reads from the environment, under its names."""

import os
from dataclasses import dataclass

from flambeau.errors import ConfigError


@dataclass(frozen=True)
class HorovodSettings:
    """Settings from the environment; the defaults are Horovod's."""

    #: Most bytes of small tensors that are summed together.
    fusion_bytes: int = 64 << 20
    #: Number of earlier agreements that are kept.
    cache_capacity: int = 1024
    #: Seconds until an operation that not all ranks have requested is reported; 0: never.
    stall_seconds: float = 60.0
    #: File for the timeline of operations.
    timeline: str = ""
    #: Seconds that ranks wait for each other in `init`.
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
    """Return the ranks and sizes that Horovod's launcher sets, such as `local_rank`."""
    if "HOROVOD_RANK" not in os.environ or "RANK" in os.environ:
        return {}
    names = ("local_rank", "local_size", "cross_rank", "cross_size")
    found = {name: f"HOROVOD_{name.upper()}" for name in names}
    return {name: int(_number(key, 0)) for name, key in found.items() if key in os.environ}


def without_address() -> bool:
    """Return whether `fb.run` has started this process: it sets no MASTER_ADDR."""
    return "MASTER_ADDR" not in os.environ


def interface() -> str | None:
    """Return the network interface for Gloo; None if it is not set."""
    return os.environ.get("GLOO_SOCKET_IFNAME")


def _number(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise ConfigError(f"{name}={text!r} is not a number") from None
