"""Readable reasons for the errors that Ray reports about ended actors."""

from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError

from flambeau.errors import MissingDependencyError, UserError

#: Prefixes of the lines that give the reason why an actor ended.
_REASONS = ("The actor is dead", "The actor died because", "ModuleNotFound")


def never_ran(error: RayError) -> bool:
    """Return whether an actor was placed on a node that was lost before the actor could start."""
    text = str(error)
    return "node has died" in text and "The actor never ran" in text


def reason_of(error: RayError) -> str:
    """Return why an actor ended; raise an error if the user can fix the cause."""
    if isinstance(error, RayTaskError):
        cause = error.cause if isinstance(error.cause, Exception) else error
        if isinstance(cause, UserError):
            raise cause from None
        return f"{type(cause).__name__}: {_first_line(cause)}"
    if isinstance(error, ActorUnavailableError):
        return f"Ray cannot reach its actor ({_after(str(error), 'RpcError: ')})"
    if not isinstance(error, RayActorError):
        return f"{type(error).__name__}: {_first_line(error)}"
    text = str(error)
    if "No module named" in text:
        raise MissingDependencyError(
            f"a node of Ray cannot load the agent ({_line_with_reason(text)}): install Flambeau "
            "there, or ship it with Ray(runtime_env={'pip': [...]})"
        )
    return _line_with_reason(text)


def _first_line(error: Exception) -> str:
    return _short((str(error).splitlines() or [""])[0])


def _line_with_reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [line for line in lines if line.startswith(_REASONS)]
    found += [line for line in lines if "No module named" in line]
    return _short((found or lines or ["its actor has died"])[0])


def _after(text: str, mark: str) -> str:
    return _short((text.partition(mark)[2] or text).partition(" rpc_code")[0])


def _short(line: str) -> str:
    return line.partition(" Some common causes")[0][:300].rstrip(".")
