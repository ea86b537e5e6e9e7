import msgspec
import pytest

from flambeau.coordination.payloads import (
    FunctionFiles,
    FunctionValue,
    InitialWeights,
    Part,
    Payload,
    PredictorPayload,
    ScriptPayload,
    TrainingPayload,
)

SETTINGS = {"batch_size": 8, "train": {"path": "rows.csv"}}


@pytest.mark.parametrize(
    "payload",
    [
        TrainingPayload(SETTINGS, "runs/a", InitialWeights("runs/b@best", "step-2", ["layers.*"])),
        PredictorPayload(SETTINGS, "runs/a", "step-1", None, b"source", [Part(0, 0, 5, None)]),
        FunctionFiles(3, [4, 5]),
        FunctionValue(b"pickled"),
        ScriptPayload("train.py", ["--help"]),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_every_kind_of_payload_arrives_as_it_was(payload: Payload) -> None:
    data = msgspec.msgpack.encode(payload)
    assert msgspec.msgpack.decode(data, type=Payload) == payload
