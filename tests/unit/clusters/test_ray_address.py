"""What is checked before a Ray is joined."""

import socket

import pytest

from flambeau.clusters.ray.address import (
    host_and_port,
    may_be_same,
    require_known_keys,
    require_listener,
)
from flambeau.errors import ConfigError


def test_an_address_at_which_nobody_listens_is_an_error() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"no Ray can be reached at '{address}': .*refused"):
            require_listener(address)


def test_an_address_at_which_somebody_listens_is_fine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_listener(f"127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("address", ["auto", "local", "127.0.0.1", "ray://head:10001", "head:six"])
def test_other_forms_of_addresses_are_not_looked_at(address: str) -> None:
    assert host_and_port(address) is None
    require_listener(address)


@pytest.mark.parametrize(
    ("given", "used", "same"),
    [
        ("10.0.0.1:6379", "10.0.0.1:6379", True),
        ("127.0.0.1:6379", "10.0.0.1:6379", True),
        ("[::1]:6379", "10.0.0.1:6379", True),
        ("auto", "10.0.0.1:6379", True),
        ("10.0.0.1:6380", "10.0.0.1:6379", False),
        ("10.0.0.2:6379", "10.0.0.1:6379", False),
    ],
)
def test_addresses_of_one_ray_are_told_from_those_of_two(given: str, used: str, same: bool) -> None:
    assert may_be_same(given, used) == same


def test_a_misspelled_key_of_the_runtime_environment_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"no key 'workin_dir'; did you mean 'working_dir'\?"):
        require_known_keys({"pip": ["x"], "workin_dir": "."})


def test_a_key_of_a_plugin_is_left_to_ray() -> None:
    require_known_keys({"container": {}, "my_plugin": {}})
