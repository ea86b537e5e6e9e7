"""Our client of the parameter-server benchmark; answers what `rows.Requests` does.

table_client.py < settings: rows, worker, addresses, secret, encrypt, share
"""

from typing import Any, final

import numpy as np
from asking import answer_all, settings
from rows import BATCH_ROWS, DIM, FEW_ROWS, LEARNING_RATE, Requests, RowClient, batches

from flambeau.config.optimizer import OptimizerSpec
from flambeau.config.tables import TableSpec
from flambeau.embeddings.backend import TableGradient
from flambeau.parameter_server.channel import Access
from flambeau.parameter_server.client import PendingPull, PendingPush, ServerClient, Update
from flambeau.parameter_server.protocol import Key

HOST = "127.0.0.1"
OPTIMIZER = OptimizerSpec(name="adagrad", args={"lr": LEARNING_RATE})
SPEC = TableSpec("rows", DIM, optimizer=OPTIMIZER)
TIMEOUT_SECONDS = 60.0

Array = np.ndarray[Any, Any]


def ids_of(numbers: Array) -> Array:
    """The ids of rows: all over int64, as hashed categories are."""
    return numbers * np.int64(0x5851F42D4C957F2D)


@final
class TableClient(RowClient):
    """A worker's connection to the shards of a job."""

    def __init__(self, client: ServerClient, rows: int) -> None:
        self._client = client
        client.open([SPEC], None)
        numbers = batches(rows, seed=client.worker)
        self._ids = [ids_of(batch) for batch in numbers]
        generator = np.random.default_rng(client.worker)
        self._grads = generator.standard_normal((BATCH_ROWS, DIM), np.float32)
        self._pushed = 0

    def begin_pull(self, batch: int, *, few: bool = False) -> PendingPull:
        """See `RowClient`."""
        ids = self._ids[batch][:FEW_ROWS] if few else self._ids[batch]
        return self._client.begin_pull([(SPEC, ids)], training=True)

    def finish_pull(self, pending: PendingPull) -> None:
        """See `RowClient`."""
        self._client.finish_pull(pending)

    def begin_push(self, batch: int) -> PendingPush:
        """See `RowClient`."""
        ids = self._ids[batch]
        key = Key(0, 0, task=self._client.worker, batch=self._pushed)
        self._pushed += 1
        gradient = TableGradient(SPEC, ids, self._grads[: ids.size])
        return self._client.begin_push(Update(key, ids.size, ids.size, 1.0), [gradient])

    def finish_push(self, pending: PendingPush) -> None:
        """See `RowClient`."""
        result = self._client.finish_push(pending)
        assert result.outcome == "applied", result.outcome


def main(
    rows: int, worker: int, addresses: list[str], secret: str, encrypt: bool, share: bool
) -> None:
    key = bytes.fromhex(secret)
    access = Access(key, addresses.__getitem__, TIMEOUT_SECONDS, encrypt, share)
    client = ServerClient(len(addresses), access, worker, generation=0)
    answer_all(Requests(TableClient(client, rows)).answer)
    client.close()


if __name__ == "__main__":
    main(**settings())
