import os
from types import SimpleNamespace
from typing import Any

import pytest

from flambeau.coordination.roles import Role, RoleSpec
from flambeau.roles.process_group import set_rank_variables


def test_scripts_are_given_the_machine_and_the_place_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "environ", {})
    # The only worker of agent 3, which is the second one on machine 1.
    coordinator: Any = SimpleNamespace(spec=RoleSpec(Role.SCRIPT, 3, 4, 1, 2, 3, 0, machine=1))
    set_rank_variables(coordinator)
    assert os.environ == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "NODE_RANK": "1",
    }
