"""SIMD vectors of floats in kernels, for loops that Numba does not vectorise.

Vectors are values that stay in registers. Arrays are contiguous and float32, with any number of
dimensions; an index counts all numbers of an array, and is not checked.
"""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

#: Floats in a vector. A CPU with smaller registers uses several of them.
LANES = 16

_LLVM = ir.VectorType(ir.FloatType(), LANES)
#: May be contracted with the next operation, as in every other kernel.
_FLAGS = ("contract",)


class _Vector(types.Type):
    def __init__(self) -> None:
        super().__init__(name=f"Vector({LANES} x float32)")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _LLVM)  # type: ignore[no-untyped-call]


_vector = _Vector()


def _place(context: Any, builder: Any, signature: Any, arguments: Any, which: int = 0) -> Any:
    """Return the address of a number in an array; its index is the argument after `which`."""
    array = context.make_array(signature.args[which])(context, builder, arguments[which])
    return builder.gep(array.data, [arguments[which + 1]])


def _load(typing_context: Any, array: Any, index: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature, arguments)
        return builder.load(builder.bitcast(place, _LLVM.as_pointer()), align=4)

    return _vector(array, types.int64), generate


def _store(typing_context: Any, array: Any, index: Any, vector: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature, arguments)
        builder.store(arguments[2], builder.bitcast(place, _LLVM.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, _vector), generate


def _spread(typing_context: Any, array: Any, index: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = builder.load(_place(context, builder, signature, arguments))
        anything = ir.Constant(_LLVM, ir.Undefined)
        one = builder.insert_element(anything, number, ir.IntType(32)(0))
        first = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(one, anything, first)

    return _vector(array, types.int64), generate


def _zeros(typing_context: Any) -> Any:
    return _vector(), lambda *_: ir.Constant(_LLVM, [0.0] * LANES)


def _multiply_add(typing_context: Any, one: Any, other: Any, sums: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.fmul(arguments[0], arguments[1], flags=_FLAGS)
        return builder.fadd(product, arguments[2], flags=_FLAGS)

    return _vector(_vector, _vector, _vector), generate


def _copy(typing_context: Any, source: Any, at: Any, target: Any, to: Any, count: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        there, here = (_place(context, builder, signature, arguments, which) for which in (2, 0))
        cgutils.raw_memcpy(builder, there, here, arguments[4], 4)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.int64), generate


#: Load the numbers of an array from an index on.
load: Any = intrinsic(_load)
#: Store a vector at an index of an array.
store: Any = intrinsic(_store)
#: Return a vector with one number of an array in all lanes.
spread: Any = intrinsic(_spread)
zeros: Any = intrinsic(_zeros)
#: Return one * other + sums.
multiply_add: Any = intrinsic(_multiply_add)
#: Copy `count` numbers from an index of one array to an index of another.
copy: Any = intrinsic(_copy)
