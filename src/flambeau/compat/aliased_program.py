"""A program with aliases: `python -m flambeau.compat.aliased_program NAMES [-m] PROGRAM ARGUMENTS`.

Names have commas between them.
"""

import sys

from flambeau.compat.aliases import run_aliased

if __name__ == "__main__":
    _names, *_rest = sys.argv[1:]
    _module = _rest[0] == "-m"
    _program, *_arguments = _rest[1:] if _module else _rest
    run_aliased(_names.split(","), _program, _arguments, module=_module)
