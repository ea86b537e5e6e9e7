"""The role behind `flambeau.run`: calls a function in every process and returns its result."""

import os
import pickle
from typing import Any

import cloudpickle

from flambeau.clusters.child_process import ChildSpec
from flambeau.coordination.coordinator_client import CoordinatorClient
from flambeau.coordination.payloads import FunctionFiles, FunctionValue
from flambeau.roles.process_group import (
    backend_of,
    pick_device,
    process_group,
    set_rank_variables,
)


def call(child: ChildSpec, coordinator: CoordinatorClient) -> dict[str, Any]:
    """Load the function from its inherited descriptor, call it, and write the result to another.

    Where descriptors of the driver cannot be inherited, both are sent in messages.
    """
    set_rank_variables(coordinator)
    given = child.payload
    assert isinstance(given, FunctionFiles | FunctionValue)
    function, args, kwargs = (
        load(given.function) if isinstance(given, FunctionFiles) else pickle.loads(given.function)
    )
    device = pick_device("auto", child.spec.local_rank)
    with process_group(coordinator, backend_of(device)):
        result = function(*args, **kwargs)
    if isinstance(given, FunctionValue):
        return {"result": cloudpickle.dumps(result)}
    store(given.results[child.spec.rank], result)
    return {}


def store(descriptor: int, value: Any) -> None:
    """Write a value to an anonymous file that the driver, or a child, has open, too."""
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.seek(0)
        cloudpickle.dump(value, file)
        file.truncate()


def load(descriptor: int) -> Any:
    """Read a value from an anonymous file, which only our own processes can have written."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return pickle.loads(os.pread(file.fileno(), size, 0))
