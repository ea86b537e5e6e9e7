"""A script for sh that runs on a host, whatever shell its users log in with.

The command that ssh passes to the login shell is always the same and free of what some shells
would expand; the script comes over standard input, and finds the rest of the input there.
"""

#: Reads lines up to the last one of a script, and runs them. `read` takes no byte too much.
LOADER = (
    "exec sh -c '"
    's=; n=$(printf "\\nx"); n=${n%x}; '
    'while IFS= read -r l && [ "$l" != flambeau-end ]; do s="$s$l$n"; done; '
    'eval "$s"'
    "'"
)
_END = "flambeau-end"


def script_input(script: str) -> bytes:
    """Return what the loader reads: the script, and the line that ends it."""
    return f"{script}\n{_END}\n".encode()
