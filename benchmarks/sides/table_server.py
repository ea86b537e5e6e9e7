"""One shard of a parameter server with a table full of rows; says how the table grew.

table_server.py < settings: rows, index, count, secret, encrypt, share
"""

import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from asking import say, settings
from rows import BATCH_ROWS, DIM
from table_client import HOST, OPTIMIZER, SPEC, ids_of
from torch.optim import SGD

from flambeau.messaging import Server
from flambeau.parameter_server.protocol import CODEC, MAX_FRAME_BYTES
from flambeau.parameter_server.service import Service
from flambeau.parameter_server.shard import ServerShard, ShardSettings
from flambeau.tables.table import Table


def main(rows: int, index: int, count: int, secret: str, encrypt: bool, share: bool) -> None:
    grow(new_shard(0, 1), 2 * BATCH_ROWS)  # so that all kernels are compiled
    shard = new_shard(index, count)
    growth = grow(shard, rows)
    shard.begun = True
    server = Server(
        CODEC,
        bytes.fromhex(secret),
        HOST,
        max_bytes=MAX_FRAME_BYTES,
        encrypt=encrypt,
        share=share,
    )
    say(address=server.address, **growth)
    serve(Service(shard, server, 0, None, None), server)
    server.close()


def new_shard(index: int, count: int) -> ServerShard:
    """A shard that knows its table, which has no rows yet."""
    shard = ServerShard(ShardSettings(index, count, 0, OPTIMIZER, lambda groups: SGD(groups)))
    shard.declare([SPEC], None)
    return shard


def grow(shard: ServerShard, rows: int) -> dict[str, Any]:
    """Push gradients of new ids until all `rows` are there; what that took of time and memory.

    `most_resident_bytes_a_row` is the largest on the way, from half of the rows on.
    """
    table, resident = shard.tables[0], resident_bytes()
    seconds, most = [], 0.0
    for start in range(0, rows, BATCH_ROWS):
        ids = ids_of(np.arange(start, min(start + BATCH_ROWS, rows)))
        own = ids[shard.owns(ids)]
        grads = np.zeros((own.size, DIM), np.float32)
        started = time.perf_counter()
        table.push(own, grads)
        seconds.append(time.perf_counter() - started)
        if start > rows // 2:
            most = max(most, overhead(table, resident_bytes() - resident))
    return {
        "bytes_a_row": overhead(table, table.nbytes),
        "resident_bytes_a_row": overhead(table, resident_bytes() - resident),
        "most_resident_bytes_a_row": most,
        "longest_push_ms": 1e3 * max(seconds),
        "median_push_ms": 1e3 * statistics.median(seconds),
    }


def overhead(table: Table, held: int) -> float:
    """Bytes of each row that are neither its values nor its optimizer's state."""
    own = 4 * (DIM + table.optimizer.state_width(DIM))
    return held / len(table) - own


def resident_bytes() -> int:
    """Memory that this process really has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def serve(service: Service, server: Server[Any]) -> None:
    """As the server of a job does, until the input of this process ends."""
    input_ends = threading.Thread(target=sys.stdin.read, daemon=True)
    input_ends.start()
    poller = zmq.Poller()
    poller.register(server.socket, zmq.POLLIN)
    while input_ends.is_alive():
        service.turn(poller)


if __name__ == "__main__":
    main(**settings())
