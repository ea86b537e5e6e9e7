"""A script for sh that runs on a host, whatever the login shell of the user is.

The command that ssh passes to the login shell is always the same, and has nothing that some shells
would expand. The script comes over standard input, and can read the rest of the input there.
"""

#: Reads lines up to the end of a script, and runs them. `read` consumes no byte beyond them.
LOADER = (
    "exec sh -c '"
    's=; n=$(printf "\\nx"); n=${n%x}; '
    'while IFS= read -r l && [ "$l" != flambeau-end ]; do s="$s$l$n"; done; '
    'eval "$s"'
    "'"
)
_END = "flambeau-end"


def script_input(script: str) -> bytes:
    """Return the input of the loader: the script, and the line that ends it."""
    return f"{script}\n{_END}\n".encode()
