"""Authenticated messages between the processes of one job.

A message is a small msgpack header and raw buffers. Nothing that arrives is ever unpickled, every
length is checked before memory is touched, and a peer without the job's secret is refused inside
the transport's handshake.
"""

from flambeau.messaging.client import Client
from flambeau.messaging.frames import Codec
from flambeau.messaging.server import Envelope, Server
from flambeau.messaging.tokens import new_secret

__all__ = ["Client", "Codec", "Envelope", "Server", "new_secret"]
