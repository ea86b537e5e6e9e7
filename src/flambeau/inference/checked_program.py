"""Checks of a torch.export program's JSON before torch loads it, since torch runs parts of it.

torch evaluates sizes with sympy's eval, writes names into generated Python, looks operators up as
attributes of torch, and may import modules for descriptions of arguments. Texts are therefore
compared with what torch.export writes for tensor operators, and entries that the computation does
not need are removed.
"""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

import torch

from flambeau.errors import UntrustedError

#: Kinds of arguments that hold numbers, names of tensors, or names of sizes.
_KINDS = re.compile(
    "as_(none|expr|name|tensors?|optional_tensors?|nested_tensors|strings?|scalar_type|memory_format"
    "|layout|device|int_lists|float_lists|(sym_)?(int|float|bool)s?)"
)
_FORBIDDEN = frozenset({"custom_obj", "token"})

_NAME = re.compile(r"[A-Za-z0-9_.]*")
_TEXT = re.compile(r"[\w ,.:>+-]*", re.ASCII)
_FLOAT = re.compile(r"-?Infinity|NaN")
_SYMBOL = re.compile(r"[a-z]+[0-9]+")

#: Functions in the sizes that torch writes; all of them only compute numbers.
_FUNCTIONS = re.compile(
    "Integer|Add|Mul|Min|Max|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|And|Or|Not|Equality|Unequality"
    "|(Strict)?(Less|Greater)Than"
)
_OPERATIONS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub)
_LONGEST_EXPRESSION = 10_000
_HIGHEST_POWER = 8

_SIZE_OPERATORS = re.compile(
    r"_operator\.(add|sub|mul|floordiv|mod|neg|truediv|eq|ne|lt|le|gt|ge|getitem)"
    r"|torch\.sym_(max|min|not|int|float|ite)"
)

_CONTAINERS = ("builtins.tuple", "builtins.list", "builtins.dict")


def checked_program(text: bytes) -> bytes:
    """Return the program without entries that are not needed.

    Raise `UntrustedError` if it may contain code.
    """
    try:
        program = json.loads(text)
        graph_module = program["graph_module"]
        # Guards are Python code; metadata describes where in the model's code a node comes from.
        program["guards_code"] = []
        graph_module["metadata"], graph_module["treespec_namedtuple_fields"] = {}, {}
        for node in graph_module["graph"]["nodes"]:
            node["metadata"] = {}
        program["torch_version"] = ""
        _require_data(program, "")
    except UntrustedError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UntrustedError(
            f"it is not a program as torch.export writes it ({type(error).__name__})"
        ) from error
    return json.dumps(program).encode()


def require_plain(value: Any) -> None:
    """Raise `UntrustedError` unless all texts in a JSON value are names."""
    _require_data(value, "")


def _require_data(value: Any, key: str) -> None:
    """Check a JSON value that belongs to a key."""
    if isinstance(value, str):
        _require_text(key, value)
    elif isinstance(value, list):
        for item in value:
            _require_data(item, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            kind_is_known = not name.startswith("as_") or bool(_KINDS.fullmatch(name))
            if not _NAME.fullmatch(name) or not kind_is_known or name in _FORBIDDEN:
                raise UntrustedError(f"its program has {_shown(name)}, which may be code")
            _require_data(item, name)


def _require_text(key: str, text: str) -> None:
    if key == "expr_str":
        _require_expression(text)
    elif key == "target":
        _require_operator(text)
    elif key in ("in_spec", "out_spec"):
        protocol, tree = json.loads(text)
        _require_tree(protocol, tree)
    elif key in ("as_string", "as_strings"):
        _require_match(_TEXT, text)
    elif key in ("as_float", "as_floats"):
        _require_match(_FLOAT, text)
    else:
        _require_match(_NAME, text)


def _require_match(pattern: re.Pattern[str], text: str) -> None:
    if not pattern.fullmatch(text):
        raise UntrustedError(f"its program has the text {_shown(text)}, which may be code")


def _require_operator(target: str) -> None:
    if _SIZE_OPERATORS.fullmatch(target):
        return
    namespace, _, rest = target.rpartition("torch.ops.aten.")
    name, _, overload = rest.partition(".")
    found = None
    if not namespace and _NAME.fullmatch(rest) and "." not in overload:
        packet = getattr(torch.ops.aten, name, None)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            found = getattr(packet, overload, None)
    if not isinstance(found, torch._ops.OpOverload):
        raise UntrustedError(
            f"its program calls {_shown(target)}, which is not one of torch's aten operators"
        )
    if any(argument.name == "filename" for argument in found._schema.arguments):
        raise UntrustedError(f"its program calls {_shown(target)}, which reads or writes files")


def _require_tree(protocol: Any, tree: Any) -> None:
    """Check the nesting of arguments or results: only tuples, lists and dicts."""
    leaf = tree["type"] is None and tree["context"] is None and not tree["children_spec"]
    if protocol != 1 or not (leaf or tree["type"] in _CONTAINERS):
        raise UntrustedError(f"its program takes or gives {_shown(tree['type'])}")
    keys = None if leaf else json.loads(tree["context"])
    if not isinstance(keys, list | None) or any(type(key) is not str for key in keys or ()):
        raise UntrustedError(f"its program has the keys {_shown(tree['context'])}")
    for key in keys or ():
        _require_match(_NAME, key)
    for child in tree["children_spec"]:
        _require_tree(protocol, child)


def _require_expression(text: str) -> None:
    """Check an expression of sizes, which torch makes sympy evaluate as Python."""
    try:
        if len(text) > _LONGEST_EXPRESSION:
            raise ValueError("it is too long")
        unknown = next(_unknown_parts(ast.parse(text, mode="eval").body), None)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UntrustedError(f"its program has the size {_shown(text)}: {error}") from error
    if unknown is not None:
        raise UntrustedError(
            f"its program has the size {_shown(text)}, with {_shown(ast.unparse(unknown))}, "
            "which may be code"
        )


def _unknown_parts(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of an expression that are not known to be only numbers."""
    match node:
        case ast.Constant(value=int()):
            return
        case ast.Name(id=name) if _SYMBOL.fullmatch(name) or name in ("true", "false"):
            return
        case ast.UnaryOp(op=op, operand=operand) if isinstance(op, _OPERATIONS):
            yield from _unknown_parts(operand)
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _OPERATIONS):
            yield from _unknown_parts(left)
            yield from _unknown_parts(right)
        case ast.Call() if _is_symbol(node) or _is_power(node):
            return
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if _FUNCTIONS.fullmatch(name):
            for argument in args:
                yield from _unknown_parts(argument)
        case _:
            yield node


def _is_symbol(node: ast.expr) -> bool:
    """Return whether it is like `Symbol('s0', positive=True, integer=True)`."""
    match node:
        case ast.Call(
            func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))], keywords=assumptions
        ):
            flags = (each.arg is not None and _is_flag(each.value) for each in assumptions)
            return bool(_SYMBOL.fullmatch(name)) and all(flags)
    return False


def _is_flag(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _is_power(node: ast.expr) -> bool:
    """Return whether it is a small power of a symbol; powers of numbers could be huge."""
    match node:
        case ast.Call(
            func=ast.Name(id="Pow"),
            args=[base, ast.Call(func=ast.Name(id="Integer"), args=[ast.Constant(value=power)])],
            keywords=[],
        ):
            small = isinstance(power, int) and 0 <= power <= _HIGHEST_POWER
            return small and _is_symbol(base)
    return False


def _shown(text: Any) -> str:
    shown = repr(text)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
