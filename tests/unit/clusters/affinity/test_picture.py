from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from recorded_machines import KNL, TWO_SOCKETS

from flambeau.clusters.affinity.bindings import Binding, plan_bindings
from flambeau.clusters.affinity.picture import draw, ranges
from flambeau.clusters.affinity.processors import parse_list, read_processors


def test_the_picture_has_a_column_for_each_core_and_a_row_for_each_level(tmp_path: Path) -> None:
    processors = read_processors(TWO_SOCKETS.write(tmp_path), TWO_SOCKETS.threads)
    assert draw(processors, plan_bindings(processors, 4)) == [
        "NUMA node 0: 4 cores, 2 hardware threads each",
        "  0011",
        "  ....",
        "NUMA node 1: 4 cores, 2 hardware threads each",
        "  2233",
        "  ....",
        "rank 0: 2 threads, bound to CPUs 0-1",
        "rank 1: 2 threads, bound to CPUs 2-3",
        "rank 2: 2 threads, bound to CPUs 4-5",
        "rank 3: 2 threads, bound to CPUs 6-7",
    ]


def test_a_large_machine_fits_into_a_terminal(tmp_path: Path) -> None:
    processors = read_processors(KNL.write(tmp_path), KNL.threads)
    lines = draw(processors, plan_bindings(processors, 64, threads_per_core=4))
    assert max(map(len, lines)) <= 80


def test_ranks_that_are_not_bound_say_so(tmp_path: Path) -> None:
    processors = read_processors(tmp_path, [0])
    assert draw(processors, [Binding((), 1), Binding((), None)])[-2:] == [
        "rank 0: 1 thread, not bound",
        "rank 1: not bound",
    ]


@given(st.sets(st.integers(0, 300)))
def test_ranges_are_read_as_they_are_written(numbers: set[int]) -> None:
    assert parse_list(ranges(sorted(numbers))) == sorted(numbers)
