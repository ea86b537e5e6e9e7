"""Hosts in the formats of horovodrun: `-H host1:2,host2:2`, or a file of `host1 slots=2` lines."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flambeau.config import Cluster


def cluster_for(
    hosts: str | None,
    hostfile: Path | None,
    processes: int | None,
    ssh: Sequence[str],
    environment: Mapping[str, str],
) -> "Cluster":
    """Return the cluster: this machine if no other host is given, else the hosts by ssh.

    `ssh` is the program with its options, and `environment` the variables to set on hosts.
    """
    from flambeau.config import Local, Ssh
    from flambeau.config.host_file import read_hosts
    from flambeau.errors import ConfigError

    if hosts is not None and hostfile is not None:
        raise ConfigError("give -H or --hostfile, not both")
    given = hostfile if hosts is None else list(filter(None, hosts.split(",")))
    if given is None:
        return Local(processes or 1)
    found = read_hosts(given)
    slots = sum(host.slots or 1 for host in found)
    count = processes or slots
    if count > slots:
        raise ConfigError(f"-np {count}: the hosts have {slots} slots; give them more")
    here = {"localhost", "127.0.0.1", socket.gethostname(), socket.getfqdn()}
    if all(host.name in here for host in found):
        return Local(count)
    lines = [f"{host.name} slots={host.slots or 1}" for host in found]
    return Ssh(lines, workers=count, ssh=tuple(ssh), environment=dict(environment))
