"""Why an actor has ended, as Ray reports it."""

import re

import pytest
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ObjectLostError,
    RayActorError,
    RayError,
    RayTaskError,
)

from flambeau.clusters.ray.errors import never_ran, reason_of
from flambeau.errors import DataError, MissingDependencyError

KILLED = """\
The actor died unexpectedly before finishing this task.
\tclass_name: AgentActor
\tactor_id: d9c226f197d634c9ce9d639801000000
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit \
detail: Worker unexpectedly exits with a connection error code 2. End of file. Some common causes \
include: (1) the process was killed by the OOM killer due to high memory usage."""
NODE_DIED = """\
The actor died unexpectedly before finishing this task.
\tip: 127.0.0.4
The actor died because its node has died. Node Id: dd9ff
\tthe actor's node was terminated unexpectedly: health check failed"""
NEVER_RAN = "The actor never ran - it was cancelled before it started running."


def died(text: str) -> RayActorError:
    return RayActorError("d9c2", text)


def task_error(cause: Exception) -> RayTaskError:
    return RayTaskError("serve", "Traceback ...", cause)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (died(KILLED), r"The actor is dead because its worker process .* code 2\. End of file$"),
        (died(NODE_DIED), r"^The actor died because its node has died\. Node Id: dd9ff$"),
        (
            ActorUnavailableError("RpcError: RPC error: Socket closed rpc_code: 14", b"1" * 16),
            r"^Ray cannot reach its actor \(RPC error: Socket closed\)$",
        ),
        (ActorDiedError(), r"^The actor died unexpectedly before finishing this task$"),
        (task_error(RuntimeError("it is full\nof water")), r"^RuntimeError: it is full$"),
        (ObjectLostError("ab", "", ""), r"^ObjectLostError: "),
    ],
    ids=["killed", "node", "unreachable", "unknown", "raised", "object"],
)
def test_the_line_that_says_why(error: RayError, reason: str) -> None:
    assert re.search(reason, reason_of(error))


def test_what_the_user_can_change_is_raised() -> None:
    with pytest.raises(DataError, match="no room"):
        reason_of(task_error(DataError("no room for rows")))
    with pytest.raises(MissingDependencyError, match=r"'flambeau'.*install Flambeau there"):
        reason_of(died("The actor died\nModuleNotFoundError: No module named 'flambeau'"))


def test_only_an_actor_that_was_placed_on_a_lost_node_never_ran() -> None:
    assert never_ran(died(f"{NODE_DIED}\n{NEVER_RAN}"))
    assert not never_ran(died(NODE_DIED))
    assert not never_ran(died(f"{KILLED}\n{NEVER_RAN}"))
