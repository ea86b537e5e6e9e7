"""The data of Angel's jobs: formats, splits, ids, predictions."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch
from angel_modules import INPUT_DIM, BiasWeight, Field, Mats
from angel_modules import saved as save
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.compat.angel import load, rows, saved
from flambeau.compat.angel.decay import EpochDecay
from flambeau.compat.angel.predicting import predict
from flambeau.compat.angel.splitting import Split
from flambeau.compat.angel.training import Training, optimizers
from flambeau.compat.angel.words import parse_words
from flambeau.config import DatasetData, FileData
from flambeau.data.source import Shard, StreamedSource
from flambeau.errors import ConfigError, DataError
from flambeau.runs.open_data import open_data


class Numbers(StreamedSource):
    """Shards of consecutive numbers, given in small batches."""

    schema = pa.schema({"n": pa.int64()})

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes

    def shards(self):
        return [Shard("numbers", part, rows) for part, rows in enumerate(self._sizes)]

    def read(self, shard, columns, start=0, stop=None):
        first = sum(self._sizes[: shard.part])
        stop = shard.rows if stop is None else stop
        for begin in range(start, stop, 3):
            end = min(begin + 3, stop)
            yield pa.record_batch({"n": pa.array(range(first + begin, first + end), pa.int64())})


def numbers(source: StreamedSource, shard: Shard, start: int = 0, stop: int | None = None):
    return [n for batch in source.read(shard, ["n"], start, stop) for n in batch["n"].to_pylist()]


def all_numbers(source: StreamedSource) -> list[int]:
    return [n for shard in source.shards() for n in numbers(source, shard)]


def test_two_parts_are_the_whole_and_the_same_everywhere():
    sizes = [40, 0, 25]
    parts = [Split(Numbers(sizes), 0.3, held_out=held_out) for held_out in (False, True)]
    train, held_out = map(all_numbers, parts)
    assert sorted(train + held_out) == list(range(65))
    assert all_numbers(Split(Numbers(sizes), 0.3, held_out=True)) == held_out
    assert [sum(shard.rows for shard in part.shards()) for part in parts] == [
        len(train),
        len(held_out),
    ]


def test_the_held_out_share_is_about_the_ratio():
    assert len(all_numbers(Split(Numbers([2000]), 0.1, held_out=True))) == pytest.approx(
        200, abs=45
    )


def test_another_seed_holds_out_other_rows():
    parts = [Split(Numbers([50]), 0.5, held_out=True, seed=seed) for seed in (0, 1)]
    assert all_numbers(parts[0]) != all_numbers(parts[1])


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(0, 45), st.integers(0, 45))
def test_any_range_of_a_part_can_be_read(size, start, stop):
    source = Split(Numbers([5, size + 10]), 0.5, held_out=True, seed=2)
    shard = source.shards()[1]
    assert numbers(source, shard, start, stop) == numbers(source, shard)[start:stop]


def test_a_ratio_that_leaves_nothing_is_refused():
    with pytest.raises(DataError, match=r"testRatio=0\.001 of 3 rows leaves no held-out data"):
        Split(Numbers([3]), 0.001, held_out=True)


def write(path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


LINES = ["1 1:1 8:1", "0 2:1 9:0.5", "1 3:2 12:1"] * 20


def job(*words: str):
    return parse_words(words)[0]


def test_a_split_opens_on_a_worker(tmp_path):
    given = job(f"trainInput:{write(tmp_path / 'a', LINES)}", "testRatio:0.5")
    parts = rows.train_and_held_out(given, "libsvm")
    assert all(isinstance(part, DatasetData) for part in parts)
    from flambeau.checkpoint import user_code

    sources = [open_data(part, lambda ref: user_code.load(ref, tmp_path)) for part in parts]
    assert sum(shard.rows for source in sources for shard in source.shards()) == len(LINES)


def test_validation_data_replaces_the_split(tmp_path):
    path = write(tmp_path / "a", LINES)
    train, valid = rows.train_and_held_out(job(f"input:{path}", f"validateInput:{path}"), "libsvm")
    assert isinstance(train, FileData)
    assert train == valid
    assert rows.train_and_held_out(job(f"input:{path}", "testRatio:0"), "libsvm")[1] is None


def test_partitions_decide_the_size_of_shards(tmp_path):
    path = write(tmp_path / "a", LINES * 200)
    size = (tmp_path / "a").stat().st_size
    few = rows.files(job(f"input:{path}", "partitionNum:2"), path, "libsvm")
    many = rows.files(job(f"input:{path}"), path, "libsvm")
    assert few.options["shard_bytes"] == size // 2
    assert many.options["shard_bytes"] == rows.SMALL_SHARD_BYTES
    assert len(rows.open_files(few).shards()) == 2


def test_the_format_follows_from_the_model_unless_it_is_given(tmp_path):
    plain = load(save(Mats(), tmp_path)).contract
    fields = load(save(Field(), tmp_path)).contract
    assert rows.data_format(job("input:a"), plain) == "libsvm"
    assert rows.data_format(job("input:a"), fields) == "libffm"
    assert rows.data_format(job("input:a", "dataType:dummy"), plain) == "dummy"


def test_an_id_beyond_input_dim_is_found_before_training(tmp_path):
    model = save(BiasWeight(), tmp_path)
    path = write(tmp_path / "a", ["1 13:1", *LINES, "1 20:1"])
    with pytest.raises(DataError, match=r"id 19 \(counted from 0\).*--input_dim 20"):
        Training(job(f"input:{path}", f"torchModelPath:{model}"))
    good = write(tmp_path / "b", LINES)
    assert Training(job(f"input:{good}", f"torchModelPath:{model}")).rows == [len(LINES)]


def test_two_jobs_of_one_model_have_run_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = (
        f"input:{write(tmp_path / 'a', LINES)}",
        f"torchModelPath:{save(BiasWeight(), tmp_path)}",
    )
    first, second = (Training(job(*words))._run_directory().path for _ in range(2))
    assert first != second
    given = Training(job(*words, "runDir:here"))._run_directory()
    assert given.path == Path("here")


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        ("libsvm", LINES),
        ("libffm", ["1 0:1:1 1:8:1", "0 0:2:1 1:9:0.5"]),
        ("dummy", ["1,0,7", "0 1 8"]),
    ],
)
def test_every_format_is_predicted(form, lines, tmp_path):
    module = BiasWeight(rows=INPUT_DIM)
    module.weights.data = torch.arange(INPUT_DIM).view(-1, 1) / 10
    words = [
        f"input:{write(tmp_path / 'a', lines)}",
        f"torchModelPath:{save(module, tmp_path)}",
        f"dataType:{form}",
        "actionType:predict",
        f"predictOutputPath:{tmp_path / 'out'}",
        "batchSize:2",
    ]
    path, count = predict(job(*words))
    first, second = (line.split("\t") for line in path.read_text().splitlines()[:2])
    assert count == len(lines) == len(path.read_text().splitlines())
    value = 1.0 if form == "dummy" else 0.5
    assert (first[0], second[0]) == ("1", "0")
    assert float(first[1]) == pytest.approx(torch.sigmoid(torch.tensor(0.7)).item(), rel=1e-5)
    expected = torch.sigmoid(torch.tensor(0.1 + value * 0.8)).item()
    assert float(second[1]) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ConfigError, match="exists already"):
        predict(job(*words))


def test_a_model_without_rows_does_not_predict(tmp_path):
    given = job(
        f"input:{write(tmp_path / 'a', LINES)}",
        f"torchModelPath:{save(BiasWeight(), tmp_path)}",
        "actionType:predict",
        f"predictOutputPath:{tmp_path / 'out'}",
    )
    with pytest.raises(ConfigError, match="has not been trained: give angelModelInputPath"):
        predict(given)
    assert not (tmp_path / "out").exists()


def test_the_rate_falls_by_epochs():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    schedule, rates = EpochDecay(optimizer, decay=1.0), []
    for _ in range(3):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == [0.5, 0.25, 0.5 / 3]


def test_optimizers_are_for_weights_and_for_tables():
    assert {
        name: tuple(spec.name for spec in optimizers(name, 0.1))
        for name in ("adam", "sgd", "momentum", "adagrad")
    } == {
        "adam": ("adam", "adam"),
        "sgd": ("sgd", "sgd"),
        "momentum": ("sgd", "momentum"),
        "adagrad": ("adagrad", "adagrad"),
    }


def test_the_model_file_itself_is_not_overwritten(tmp_path):
    from flambeau.compat.angel.training import output_file

    model = tmp_path / "model.pt"

    def written(out):
        words = ("input:rows", f"torchModelPath:{model}", f"modulePath:{out}")
        return output_file(parse_words(words)[0])

    with pytest.raises(ConfigError, match="is the model file itself"):
        written(model)
    assert written(tmp_path / "out.pt").name == "out.pt"
    (tmp_path / "folder").mkdir()
    assert written(tmp_path / "folder") == tmp_path / "folder" / "model.pt"


def test_dense_weights_come_back_from_a_folder(tmp_path):
    given = {"bias": torch.tensor([1.0]), "mats.0": torch.ones(2, 2)}
    saved.write_folder(given, {}, tmp_path)
    own = {"bias": torch.zeros(1), "mats.0": torch.zeros(2, 2)}
    saved.load_dense(own, tmp_path)
    assert all(torch.equal(own[name], given[name]) for name in given)


@pytest.mark.parametrize(
    ("module", "words", "line", "message"),
    [
        (BiasWeight, [], "1 0:3:1 1:2:1", r"looks like libffm \('0:3:1'\).*--encode multihot"),
        (Field, [], "1 3:1 2:1", r"looks like libsvm \('3:1'\).*--encode onehot"),
        (Field, ["dataFormat:libsvm"], "1 0:3:1", r"give dataFormat:libffm"),
    ],
)
def test_files_that_look_like_another_format_say_what_fits(
    tmp_path: Path, module, words, line, message
) -> None:
    (tmp_path / "rows").write_text(f"{line}\n")
    model = save(module(), tmp_path)
    job, _ = parse_words([f"trainInput:{tmp_path / 'rows'}", f"torchModelPath:{model}", *words])
    with pytest.raises(ConfigError, match=message):
        Training(job)
