"""How kernels are compiled, and how they reach memory that Python allocated piece by piece."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import cgutils, types
from numba.extending import intrinsic

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def kernel(function: Kernel) -> Kernel:
    """Compiled once per machine, run without the interpreter's lock, as numpy handles errors."""
    compiled = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
    return cast(Kernel, compiled(function))


def inlined(function: Kernel) -> Kernel:
    """A piece of a kernel that costs no call."""
    return cast(Kernel, numba.njit(cache=True, nogil=True, inline="always")(function))


def _pointer(typing_context: Any, address: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


#: An address as something that `carray` takes.
pointer: Any = intrinsic(_pointer)

#: An array over memory at a pointer.
carray: Any = numba.carray  # type: ignore[attr-defined]
