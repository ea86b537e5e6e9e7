"""Authenticated messages between the processes of one job.

A message consists of a small msgpack header and raw buffers. Received data is never unpickled,
every length is checked before memory is accessed, and a peer without the job's secret is refused
during the transport's handshake.
"""

from flambeau.messaging.client import Client
from flambeau.messaging.frames import Codec
from flambeau.messaging.server import Envelope, Server
from flambeau.messaging.tokens import new_secret

__all__ = ["Client", "Codec", "Envelope", "Server", "new_secret"]
