"""Training that survives the loss of a rank: state that is committed, restored and synchronized."""

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
    """Return a function that restarts from the last commit after a rank is lost.

    Its first argument is the state. The launcher has to restart the lost rank; the others wait for
    it in `init`.
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
    """The state that training resumes from. Subclasses save, restore and share it."""

    def __init__(self) -> None:
        self._reset_callbacks: list[Callable[[], None]] = []
        #: Number of commits of this process, or of the rank that it received its state from.
        self._commits = 0

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """Add functions to call after ranks have been lost, before training resumes."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Reset the state and call the registered functions after the loss of a rank."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Save the state as the one to restore; this takes as long as copying it."""
        self._commits += 1
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Do nothing: the hosts are fixed."""

    def sync(self) -> None:
        """Share the state of the rank with the most commits: a restarted rank has none."""
        commits = allgather_object(self._commits, "elastic.commits")
        root = commits.index(max(commits))
        self._commits = commits[root]
        self.share(root)

    def save(self) -> None:
        """Keep a copy of the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restore the last copy."""
        raise NotImplementedError

    def share(self, root: int) -> None:
        """Replace the state with that of a rank, and save it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Prepare for a new group of ranks."""


class ObjectState(State):
    """A state of picklable values, as attributes."""

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._saved: dict[str, Any] = values
        self._set_values()

    def save(self) -> None:
        """Keep a copy of the values."""
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._saved}

    def restore(self) -> None:
        """Restore the last copy."""
        self._set_values()

    def _set_values(self) -> None:
        for name, value in self._saved.items():
            setattr(self, name, copy.deepcopy(value))

    def share(self, root: int) -> None:
        """Replace the values with those of a rank."""
        current = {name: getattr(self, name) for name in self._saved}
        self._saved = broadcast_object(current, root, "elastic.values")
        self._set_values()


class TorchState(ObjectState):
    """A state of models, optimizers, samplers and other picklable values, as attributes."""

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
        """Restore the last copy; gradients in flight are dropped."""
        for name, kept in self._copies.items():
            self._parts[name].load_state_dict(copy.deepcopy(kept))
        super().restore()

    def share(self, root: int) -> None:
        """Replace all parts and values with those of a rank; merge what samplers have recorded."""
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
        """Drop the gradients in flight."""
        for part in self._parts.values():
            if isinstance(part, torch.optim.Optimizer) and hasattr(part, "_hvd"):
                part._hvd.drop()


def _has_state(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
