"""Process sets: groups of ranks with their own operations."""

from collections.abc import Sequence
from typing import Any

from flambeau.compat.horovod.engine.running import engine
from flambeau.compat.horovod.execution.work import Work
from flambeau.compat.horovod.negotiation.messages import ALL, Request


class ProcessSet:
    """The ranks that take part in an operation.

    All ranks have to register it with `init(process_sets=...)` or `add_process_set`.
    """

    def __init__(self, ranks_or_comm: Sequence[int] | Any) -> None:
        if not isinstance(ranks_or_comm, Sequence | range):
            raise ValueError(
                "a process set is a sequence of ranks; communicators of MPI are not supported"
            )
        self._ranks: list[int] | None = sorted(int(rank) for rank in ranks_or_comm)
        self.process_set_id: int | None = None

    @property
    def ranks(self) -> list[int] | None:
        """The ranks in the set."""
        return self._ranks

    @property
    def mpi_comm(self) -> None:
        """None: there is no MPI communicator."""
        return None

    def size(self) -> int:
        """Return the number of ranks in the set."""
        return len(self._registered())

    def rank(self) -> int:
        """Return the index of this rank in the set."""
        ranks = self._registered()
        own = engine().place.rank
        if own not in ranks:
            raise ValueError(f"rank {own} is not in {self}")
        return ranks.index(own)

    def included(self) -> bool:
        """Return whether this rank is in the set."""
        return engine().place.rank in self._registered()

    def _registered(self) -> list[int]:
        if self.process_set_id is None or self.process_set_id not in engine().ranks_of:
            raise ValueError(f"{self} is not known: give it to hvd.init or hvd.add_process_set")
        return engine().ranks_of[self.process_set_id]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ProcessSet)
            and self.process_set_id == other.process_set_id
            and self.ranks == other.ranks
        )

    def __hash__(self) -> int:
        return hash((self.process_set_id, tuple(self._ranks or ())))

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__


class _Global(ProcessSet):
    """The process set of all ranks."""

    def __init__(self) -> None:
        super().__init__(())
        self.process_set_id = ALL

    @property
    def ranks(self) -> list[int] | None:
        """All ranks, once Horovod has been initialized."""
        return engine().ranks_of[ALL]

    def __hash__(self) -> int:
        return ALL

    def __eq__(self, other: object) -> bool:
        return self is other

    def __str__(self) -> str:
        return "ProcessSet(process_set_id=0, all ranks)"

    __repr__ = __str__


global_process_set = _Global()


def set_number(process_set: ProcessSet) -> int:
    """Return the number of a registered process set."""
    number = process_set.process_set_id
    if number is None or number not in engine().ranks_of:
        raise ValueError(f"{process_set} is not known: give it to hvd.init or hvd.add_process_set")
    return number


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a process set on all ranks, which all have to call this with the same ranks."""
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if added.process_set_id is not None and added.process_set_id in engine().ranks_of:
        raise ValueError(f"{added} has been added already")
    ranks = added.ranks or []
    if (
        not ranks
        or len(set(ranks)) < len(ranks)
        or not 0 <= ranks[0] <= ranks[-1] < engine().place.size
    ):
        raise ValueError(
            f"a process set of ranks {ranks}: give different ranks below {engine().place.size}"
        )
    same = [known for number, known in engine().ranks_of.items() if known == ranks]
    if same:
        raise ValueError(f"a process set of ranks {ranks} exists already")
    added.process_set_id = _together(Request("add_process_set", "", splits=ranks))
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set on all ranks, which all have to call this; return whether it existed."""
    number = process_set.process_set_id
    if number == ALL:
        raise ValueError("the process set of all ranks cannot be removed")
    if number is None or number not in engine().ranks_of:
        return False
    _together(Request("remove_process_set", "", root=number, splits=[number]))
    process_set.process_set_id = None
    return True


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """Return the ranks of all process sets, by number."""
    return {number: list(ranks) for number, ranks in engine().ranks_of.items()}


def process_set_by_id(number: int) -> ProcessSet:
    """Return the process set with a number."""
    if number == ALL:
        return global_process_set
    found = ProcessSet(engine().ranks_of[number])
    found.process_set_id = number
    return found


def _together(request: Request) -> Any:
    running = engine()
    name = running.name(request.kind, None, ALL)
    work = Work(Request(request.kind, name, root=request.root, splits=request.splits))
    running.submit([work])
    return work.wait()
