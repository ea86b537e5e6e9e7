"""How kernels are compiled, and how they reach memory that Python allocated piece by piece."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
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


def _prefetch(typing_context: Any, address: Any) -> Any:
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, *[ir.IntType(32)] * 3])
    # Of data, to be read, and to stay in every cache.
    how = [ir.IntType(32)(number) for number in (0, 3, 1)]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        builder.call(fetch, [place, *how])
        return context.get_dummy_value()

    return types.void(types.int64), generate


#: Ask for the memory at an address, which need not be there, before it is used.
prefetch: Any = intrinsic(_prefetch)

#: How many items ahead of their use kernels ask for memory.
AHEAD = 16

#: An array over memory at a pointer.
carray: Any = numba.carray  # type: ignore[attr-defined]
