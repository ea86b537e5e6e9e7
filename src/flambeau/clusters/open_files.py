"""The limit of files and connections that a process may have open."""

import resource
import sys

#: Some machines set a practically unlimited value; programs that iterate up to it take minutes.
MOST = 1 << 20


def raise_open_files() -> None:
    """Raise the soft limit of open files of this process as far as allowed.

    Connections from other programs to a listening port count against it until they are closed,
    and libraries such as gloo abort a process that reaches it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    # Other systems have further limits, above which setting this one fails.
    if sys.platform == "linux" and 0 <= soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
