"""Who a process is, by the variables of its launcher."""

import pytest

from flambeau.clusters.attached import launchers
from flambeau.clusters.attached.launchers import detected, identity_of
from flambeau.config import Attached
from flambeau.errors import ConfigError

#: As the launchers set them, in rank 3 of 8.
ENVIRONMENTS = {
    "torchrun": {
        "RANK": "3",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "abc",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "MASTER_ADDR": "node1",
        "MASTER_PORT": "29500",
    },
    "horovod": {"HOROVOD_RANK": "3", "HOROVOD_SIZE": "8", "HOROVOD_LOCAL_SIZE": "4"},
    "openmpi": {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "PMIX_NAMESPACE": "prterun-node1-77@1",
    },
    "mvapich": {"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_SIZE": "8", "PMI_RANK": "3"},
    "pals": {
        "PALS_RANKID": "3",
        "PMI_RANK": "3",
        "PMI_SIZE": "8",
        "PALS_LOCAL_RANKID": "1",
        "PALS_NODEID": "1",
        "PALS_APID": "77",
        "PBS_JOBID": "12.pbs",
    },
    "jsrun": {"JSM_NAMESPACE_RANK": "3", "JSM_NAMESPACE_SIZE": "8", "LSB_JOBID": "5"},
    "flux": {
        "FLUX_TASK_RANK": "3",
        "FLUX_JOB_SIZE": "8",
        "FLUX_JOB_ID": "f123",
        "PMI_RANK": "3",
        "PMI_SIZE": "8",
    },
    "aprun": {
        "ALPS_APP_PE": "3",
        "COBALT_JOBSIZE": "4",
        "FLAMBEAU_RANKS_PER_NODE": "2",
        "COBALT_JOBID": "9",
        "PMI_FORK_RANK": "1",
    },
    "mpich": {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
    "slurm": {
        "SLURM_PROCID": "3",
        "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_NTASKS": "8",
        "SLURM_LOCALID": "1",
        "SLURM_NODEID": "1",
        "SLURM_JOB_ID": "42",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_NODES": "4",
        "SLURM_RESTART_COUNT": "1",
    },
}


@pytest.mark.parametrize("launcher", ENVIRONMENTS)
def test_each_launcher_is_known_by_its_variables(launcher: str) -> None:
    found = identity_of(Attached(), ENVIRONMENTS[launcher])
    assert (found.launcher, found.rank, found.size) == (launcher, 3, 8)
    assert not found.one_host
    assert detected(ENVIRONMENTS[launcher]) == found


def test_all_launchers_are_tried_and_are_settings() -> None:
    assert ENVIRONMENTS.keys() == {each.name for each in launchers.LAUNCHERS}
    for name in ENVIRONMENTS:
        assert Attached(detect=name).detect == name


def test_a_launcher_inside_an_allocation_counts_before_slurm() -> None:
    both = {**ENVIRONMENTS["slurm"], **ENVIRONMENTS["openmpi"], "SLURM_PROCID": "0"}
    assert identity_of(Attached(), both).launcher == "openmpi"
    assert identity_of(Attached(detect="slurm"), both).rank == 0


def test_a_batch_script_is_not_a_process_of_a_launcher() -> None:
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "42"}
    assert detected(batch) is None
    with pytest.raises(ConfigError, match="no launcher has started this process"):
        identity_of(Attached(), batch)


def test_jobs_have_names_of_their_own() -> None:
    slurm = ENVIRONMENTS["slurm"]
    names = {
        identity_of(Attached(), {**slurm, **other}).job
        for other in ({}, {"SLURM_STEP_ID": "1"}, {"SLURM_RESTART_COUNT": "2"})
    }
    assert len(names) == 3
    assert identity_of(Attached(), ENVIRONMENTS["openmpi"]).job == "openmpi-prterun-node1-77-1"
    named = {**ENVIRONMENTS["mpich"], "FLAMBEAU_JOB_ID": "../mine"}
    assert identity_of(Attached(), named).job == "mpich-..-mine"


def test_processes_of_one_host_share_the_name_of_their_parent() -> None:
    here = {**ENVIRONMENTS["mpich"], "MPI_LOCALNRANKS": "8"}
    found = identity_of(Attached(), here)
    assert found.one_host
    assert found.job != identity_of(Attached(), ENVIRONMENTS["mpich"]).job


def test_what_is_given_counts_before_what_is_found() -> None:
    found = identity_of(Attached(rank=1, size=2), ENVIRONMENTS["slurm"])
    assert (found.rank, found.size) == (1, 2)
    off = {**ENVIRONMENTS["slurm"], "FLAMBEAU_ATTACH": "off"}
    assert detected(off) is None
    assert (identity_of(Attached(), off).rank, identity_of(Attached(), off).size) == (0, 1)
    assert identity_of(Attached(detect="slurm"), off).size == 8
    chosen = {**ENVIRONMENTS["slurm"], **ENVIRONMENTS["openmpi"], "FLAMBEAU_ATTACH": "slurm"}
    assert identity_of(Attached(), chosen).launcher == "slurm"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "RANK='x' is not a number"),
        ({"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "rank 2 of 2"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "none of OMPI_COMM_WORLD_SIZE"),
        ({"ALPS_APP_PE": "0"}, "FLAMBEAU_RANKS_PER_NODE"),
        ({"FLAMBEAU_ATTACH": "srun"}, "give 'off', or one of torchrun, "),
    ],
)
def test_what_makes_no_sense_is_an_error(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        identity_of(Attached(), environment)


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="its variables"):
        identity_of(Attached(detect="flux"), {})
    with pytest.raises(ValueError, match="give rank= and size= together"):
        Attached(rank=1)
