from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_machines import CONTAINER, KNL, ONE_CORE, TWO_SOCKETS, Machine, sockets

from flambeau.clusters.affinity.bindings import Binding, plan_bindings
from flambeau.clusters.affinity.processors import Core, Processors, read_processors


def plan(machine: Machine, root: Path, ranks: int, **options: int) -> list[Binding]:
    processors = read_processors(machine.write(root), machine.threads)
    return plan_bindings(processors, ranks, **options)


def cpus(machine: Machine, root: Path, ranks: int, **options: int) -> list[tuple[int, ...]]:
    return [binding.cpus for binding in plan(machine, root, ranks, **options)]


def test_each_of_two_ranks_gets_the_physical_cores_of_a_socket(tmp_path: Path) -> None:
    assert plan(TWO_SOCKETS, tmp_path, 2) == [Binding((0, 1, 2, 3), 4), Binding((4, 5, 6, 7), 4)]


def test_hyper_threads_are_used_if_asked_for(tmp_path: Path) -> None:
    found = cpus(TWO_SOCKETS, tmp_path, 2, threads_per_core=2)
    assert found == [(0, 8, 1, 9, 2, 10, 3, 11), (4, 12, 5, 13, 6, 14, 7, 15)]


def test_hyper_threads_are_used_where_there_are_more_ranks_than_cores(tmp_path: Path) -> None:
    found = cpus(TWO_SOCKETS, tmp_path, 16)
    assert sorted(found) == [(number,) for number in range(16)]


def test_three_ranks_on_two_sockets_stay_within_one_each(tmp_path: Path) -> None:
    assert cpus(TWO_SOCKETS, tmp_path, 3) == [(0, 1), (2, 3), (4, 5, 6, 7)]


def test_one_rank_gets_count_cores_of_both_sockets(tmp_path: Path) -> None:
    assert plan(TWO_SOCKETS, tmp_path, 1) == [Binding(tuple(range(8)), 8)]


def test_four_ranks_on_knl_get_sixteen_cores_each(tmp_path: Path) -> None:
    found = plan(KNL, tmp_path, 4, threads_per_core=2)
    assert [len(binding.cpus) for binding in found] == [32] * 4
    assert found[0].cpus[:4] == (0, 64, 1, 65)
    assert found[3].cpus[0] == 48


def test_ranks_that_share_the_only_core_are_not_bound(tmp_path: Path) -> None:
    assert plan(ONE_CORE, tmp_path, 1) == [Binding((0,), 1)]
    assert plan(ONE_CORE, tmp_path, 2) == [Binding((), 1)] * 2


def test_under_a_quota_no_rank_is_bound_and_threads_share_it(tmp_path: Path) -> None:
    assert plan(CONTAINER, tmp_path, 1) == [Binding((), 3)]
    assert plan(CONTAINER, tmp_path / "two", 2) == [Binding((), 1)] * 2


def test_a_quota_above_the_cores_changes_nothing(tmp_path: Path) -> None:
    roomy = Machine(sockets(1, 2, 1), quota="800000 100000")
    assert cpus(roomy, tmp_path, 2) == [(0,), (1,)]


def test_only_cores_of_an_odd_cpuset_are_used(tmp_path: Path) -> None:
    # Half of core 1 and all of core 2 on the first socket, one thread on the second.
    processors = read_processors(TWO_SOCKETS.write(tmp_path), [9, 2, 10, 15])
    assert processors.cores == (Core(0, (2, 10)), Core(0, (9,)), Core(1, (15,)))
    found = plan_bindings(processors, 3)
    assert [binding.cpus for binding in found] == [(2,), (9,), (15,)]


def test_ranks_are_on_the_node_of_their_gpu(tmp_path: Path) -> None:
    crossed = Machine(sockets(2, 4, 1), gpu_nodes=[1, 0])
    assert cpus(crossed, tmp_path, 2) == [(4, 5, 6, 7), (0, 1, 2, 3)]
    assert cpus(crossed, tmp_path / "four", 4) == [(4, 5), (0, 1), (6, 7), (2, 3)]


def test_visible_gpus_are_numbered_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crossed = Machine(sockets(2, 4, 1), gpu_nodes=[1, 0, 0, 1]).write(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert read_processors(crossed, range(8)).gpu_nodes == (1, 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f3c")
    assert read_processors(crossed, range(8)).gpu_nodes == (None,)


def test_threads_can_be_asked_for(tmp_path: Path) -> None:
    assert [each.threads for each in plan(TWO_SOCKETS, tmp_path, 2, threads=3)] == [3, 3]


def test_a_kernel_without_topology_has_one_core_for_each_processor(tmp_path: Path) -> None:
    processors = read_processors(tmp_path, [0, 1, 5])
    assert processors == Processors((Core(0, (0,)), Core(0, (1,)), Core(0, (5,))))


@given(
    st.integers(1, 4), st.integers(1, 9), st.sampled_from([1, 2, 4]), st.integers(1, 80), st.data()
)
def test_sets_are_disjoint_and_nearly_even(
    count: int, cores: int, level: int, ranks: int, data: st.DataObject
) -> None:
    machine = Machine(sockets(count, cores, level))
    processors = Processors(
        tuple(Core(node, tuple(threads)) for (node, _, _), threads in machine.cores.items())
    )
    per_core = data.draw(st.sampled_from([1, 2, 4]))
    found = plan_bindings(processors, ranks, threads_per_core=per_core)
    assert len(found) == ranks
    if ranks > count * cores * level:
        assert all(binding == Binding((), 1) for binding in found)
        return
    used = [cpu for binding in found for cpu in binding.cpus]
    assert len(used) == len(set(used))
    assert min(len(binding.cpus) for binding in found) >= 1
    if ranks >= count:
        node_of = {t: node for (node, _, _), threads in machine.cores.items() for t in threads}
        assert all(len({node_of[cpu] for cpu in binding.cpus}) == 1 for binding in found)
