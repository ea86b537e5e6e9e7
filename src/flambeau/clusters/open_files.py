"""How many files and connections a process may have open."""

import resource
import sys

#: Some machines set no limit worth the name; programs that walk up to it would take minutes.
MOST = 1 << 20


def raise_open_files() -> None:
    """Raise the soft limit of open files of this process as far as it may.

    Connections that strangers make to a listening port count against it until they are cut off,
    and libraries such as gloo end a process that reaches it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    # Other systems have further limits, beyond which setting this one fails.
    if sys.platform == "linux" and 0 <= soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
