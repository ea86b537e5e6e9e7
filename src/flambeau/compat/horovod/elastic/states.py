"""Training that survives the loss of a rank: state that is committed, restored and shared again."""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau.compat.horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from flambeau.compat.horovod.elastic.sampler import ElasticSampler
from flambeau.compat.horovod.engine import running
from flambeau.compat.horovod.functions import allgather_object, broadcast_object


def run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as one that starts again from the last commit after a rank is lost.

    Its first argument is the state. The launcher has to start the lost rank again; the others wait
    for it in `init`.
    """

    @functools.wraps(function)
    def elastic(state: "State", *args: Any, **kwargs: Any) -> Any:
        skip_sync = False
        while True:
            try:
                running.start()
                if not skip_sync:
                    state.sync()
                return function(state, *args, **kwargs)
            except HorovodInternalError:
                state.restore()
                skip_sync = False
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
            running.stop()
            state.on_reset()

    return elastic


class State:
    """What training needs to continue. Children say how to save, restore and share it."""

    def __init__(self) -> None:
        self._reset_callbacks: list[Callable[[], None]] = []
        #: How often this process has committed, or received what others had.
        self._commits = 0

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """Add functions to call after ranks have been lost, before training continues."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Call the functions that are to be called after a loss."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Save the state as the one to restore; it takes as long as a copy of it."""
        self._commits += 1
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Do nothing: the hosts are fixed."""

    def sync(self) -> None:
        """Share the state of the rank that has committed most: a restarted one has none."""
        commits = allgather_object(self._commits, "elastic.commits")
        root = commits.index(max(commits))
        self._commits = commits[root]
        self.share(root)

    def save(self) -> None:
        """Keep a copy of the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the last copy."""
        raise NotImplementedError

    def share(self, root: int) -> None:
        """Replace the state by that of a rank, and save it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Prepare for another group of ranks."""


class ObjectState(State):
    """Values that can be pickled, as attributes."""

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._saved: dict[str, Any] = values
        self._set_values()

    def save(self) -> None:
        """Keep a copy of the values."""
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._saved}

    def restore(self) -> None:
        """Go back to the last copy."""
        self._set_values()

    def _set_values(self) -> None:
        for name, value in self._saved.items():
            setattr(self, name, copy.deepcopy(value))

    def share(self, root: int) -> None:
        """Replace the values by those of a rank."""
        current = {name: getattr(self, name) for name in self._saved}
        self._saved = broadcast_object(current, root, "elastic.values")
        self._set_values()


class TorchState(ObjectState):
    """Models, optimizers and samplers, and any other values, as attributes."""

    def __init__(self, model: Any = None, optimizer: Any = None, **values: Any) -> None:
        given = {"model": model, "optimizer": optimizer, **values}
        self._parts = {name: each for name, each in given.items() if _has_state(each)}
        for name, part in self._parts.items():
            setattr(self, name, part)
        self._copies: dict[str, Any] = {}
        super().__init__(**{name: value for name, value in values.items() if not _has_state(value)})
        self._keep()

    def save(self) -> None:
        """Keep a copy of all parts and values."""
        self._keep()
        super().save()

    def _keep(self) -> None:
        self._copies = {name: copy.deepcopy(p.state_dict()) for name, p in self._parts.items()}

    def restore(self) -> None:
        """Go back to the last copy; gradients in flight are dropped."""
        for name, kept in self._copies.items():
            self._parts[name].load_state_dict(copy.deepcopy(kept))
        super().restore()

    def share(self, root: int) -> None:
        """Replace all parts and values by those of a rank. What samplers have done is united."""
        samplers = {n: p for n, p in self._parts.items() if isinstance(p, ElasticSampler)}
        done = allgather_object({n: p.done for n, p in samplers.items()}, "elastic.samplers")
        states = {name: part.state_dict() for name, part in self._parts.items()}
        for name, state in broadcast_object(states, root, "elastic.parts").items():
            self._parts[name].load_state_dict(state)
        for name, sampler in samplers.items():
            sampler.unite([each[name] for each in done])
        super().share(root)
        self._keep()

    def reset(self) -> None:
        """Share rows out anew."""
        for part in self._parts.values():
            if isinstance(part, torch.optim.Optimizer) and hasattr(part, "_hvd"):
                part._hvd.drop()


def _has_state(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
