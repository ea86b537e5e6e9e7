"""Compilation of kernels, and their access to memory that Python allocated piece by piece."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from flambeau.kernels import compile_notice

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def cache_somewhere() -> None:
    """Choose another cache folder if Numba could not write one, which would fail at import."""
    places = (Path(__file__).parent, Path.home())
    config: Any = numba.config
    if not config.CACHE_DIR and not any(os.access(place, os.W_OK) for place in places):
        config.CACHE_DIR = str(_private_folder())


def _private_folder() -> Path:
    """Return a fixed folder, or a new one if other users could write to it: it will hold code."""
    folder = Path(tempfile.gettempdir()) / f"flambeau-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid == os.getuid() and found.st_mode & 0o170077 == 0o040000:
        return folder
    return Path(tempfile.mkdtemp(prefix="flambeau-kernels-"))


cache_somewhere()
compile_notice.watch()


def kernel(function: Kernel) -> Kernel:
    """Compile a function, once per machine, that runs without the GIL and with numpy's errors."""
    compiled = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
    return cast(Kernel, compiled(function))


def reproducible_kernel(function: Kernel) -> Kernel:
    """Compile a kernel whose floating-point results have the same bits on every machine."""
    compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
    return cast(Kernel, compiled(function))


def inlined(function: Kernel) -> Kernel:
    """Compile a part of a kernel that is inlined, so that calling it costs nothing."""
    return cast(Kernel, numba.njit(cache=True, nogil=True, inline="always")(function))


def _pointer(typing_context: Any, address: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


#: Convert an address to the pointer that `carray` takes.
pointer: Any = intrinsic(_pointer)


def _prefetch(typing_context: Any, address: Any) -> Any:
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, *[ir.IntType(32)] * 3])
    # Arguments of the intrinsic: a read of data, to be kept in every cache.
    how = [ir.IntType(32)(number) for number in (0, 3, 1)]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        builder.call(fetch, [place, *how])
        return context.get_dummy_value()

    return types.void(types.int64), generate


#: Prefetch the memory at an address, which may be invalid.
prefetch: Any = intrinsic(_prefetch)

#: How many items ahead kernels prefetch memory.
AHEAD = 16

#: Return an array over the memory at a pointer.
carray: Any = numba.carray  # type: ignore[attr-defined]
