import gzip
import os

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from PIL import Image

from flambeau.config import ArrayData, CodeRef, DatasetData, FileData, LoaderData
from flambeau.data.source import Share
from flambeau.data.sources.arrays import ArraySource
from flambeau.data.sources.arrow import ArrowSource
from flambeau.data.sources.cifar import CifarSource
from flambeau.data.sources.formats import infer_format
from flambeau.data.sources.idx import IdxSource
from flambeau.data.sources.image_folder import ImageFolderSource
from flambeau.data.sources.opening import open_source
from flambeau.data.sources.parquet import ParquetSource
from flambeau.data.sources.shared_arrays import share_arrays
from flambeau.data.sources.text.csv import CsvSource
from flambeau.data.sources.torch_dataset import IterableDatasetSource, MapDatasetSource
from flambeau.errors import ConfigError, DataError

IDX = b"\0\0\x08\x01\0\0\0\x01\x07"
TABLE = pa.table({"a": [1]})


def no_code(code):
    raise AssertionError("no code is needed")


def open_files(path, **settings):
    return open_source(FileData(path=path, **settings), no_code)


def write_all(root):
    pq.write_table(TABLE, root / "a.parquet")
    pq.write_table(TABLE, root / "renamed-parquet")
    pa.feather.write_feather(TABLE, root / "a.feather")
    pa.feather.write_feather(TABLE, root / "renamed-arrow")
    (root / "a.csv").write_text("a\n1\n")
    (root / "a.tsv.gz").write_bytes(gzip.compress(b"a\tb\n1\t2\n"))
    (root / "train-images-idx1-ubyte").write_bytes(IDX)
    (root / "train-labels-idx1-ubyte").write_bytes(IDX)
    (root / "my-images.gz").write_bytes(gzip.compress(IDX))
    (root / "my-labels.gz").write_bytes(gzip.compress(IDX))
    (root / "data_batch_1.bin").write_bytes(bytes(3073))
    (root / "train.bin").write_bytes(bytes(3074))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.parquet", ParquetSource),
        ("*.parquet", ParquetSource),
        ("renamed-parquet", ParquetSource),
        ("a.feather", ArrowSource),
        ("renamed-arrow", ArrowSource),
        ("a.csv", CsvSource),
        ("a.tsv.gz", CsvSource),
        ("train-images-idx1-ubyte", IdxSource),
        ("my-images.gz", IdxSource),
        ("data_batch_1.bin", CifarSource),
    ],
)
def test_format_follows_from_name_or_first_bytes(tmp_path, name, kind):
    write_all(tmp_path)
    assert isinstance(open_files(str(tmp_path / name)), kind)


def test_hundred_classes_follow_from_the_file_name(tmp_path):
    record = bytes([0, 99]) + bytes(3072)
    (tmp_path / "train.bin").write_bytes(record)
    source = open_files(str(tmp_path))
    assert source.take(np.array([0]))["label"].item() == 99


@pytest.mark.parametrize(
    ("name", "write", "kind"),
    [
        ("part-0.parquet", lambda path: pq.write_table(TABLE, path), ParquetSource),
        ("a.csv", lambda path: path.write_text("a\n1\n"), CsvSource),
        ("cat/a.png", lambda path: Image.new("RGB", (2, 2)).save(path), ImageFolderSource),
        ("test_batch.bin", lambda path: path.write_bytes(bytes(3073)), None),
    ],
)
def test_format_of_a_directory_follows_from_its_files(tmp_path, name, write, kind):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    write(path)
    options = {} if kind else {"split": "test"}
    assert isinstance(open_files(str(tmp_path), options=options), kind or CifarSource)


def test_several_paths(tmp_path):
    write_all(tmp_path)
    paths = (str(tmp_path / "a.parquet"), str(tmp_path / "renamed-parquet"))
    assert len(open_files(paths).shards()) == 2


def test_named_format_wins_over_the_name(tmp_path):
    (tmp_path / "a.csv").write_text("a\tb\n1\t2\n")
    assert open_files(str(tmp_path / "a.csv"), format="tsv").schema.names == ["a", "b"]


def test_options_reach_the_source(tmp_path):
    (tmp_path / "a.csv").write_text("1;2\n")
    options = {"delimiter": ";", "names": ["a", "b"]}
    assert open_files(str(tmp_path / "a.csv"), options=options).schema.names == ["a", "b"]


def test_unknown_option_names_the_nearest(tmp_path):
    write_all(tmp_path)
    with pytest.raises(ConfigError, match="'delimeter' of format 'csv'; did you mean 'delimiter'"):
        open_files(str(tmp_path / "a.csv"), options={"delimeter": ";"})
    with pytest.raises(ConfigError, match="'size' of format 'parquet'; it has none"):
        open_files(str(tmp_path / "a.parquet"), options={"size": 3})


def test_unknown_format_lists_the_known(tmp_path):
    (tmp_path / "a.xyz").write_text("what is this")
    with pytest.raises(DataError, match=r"a\.xyz.*one of arrow, cifar10"):
        open_files(str(tmp_path / "a.xyz"))


def test_missing_file_names_path_and_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=rf"no file 'data/a\.csv' \(relative to {os.getcwd()}\)"):
        open_files("data/a.csv")


def test_glob_without_matches_is_shown_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"no file matches 'x/\*\.csv' \(relative to"):
        open_files("x/*.csv")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow", "images-idx3-ubyte", "a.xyz"])
def test_empty_file_is_named(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(DataError, match=f"{name} is empty"):
        open_files(str(tmp_path / name))


def test_directory_without_files_of_the_format(tmp_path):
    with pytest.raises(DataError, match=r"holds no files \.parquet"):
        open_files(str(tmp_path), format="parquet")


def test_formats_of_one_path_refuse_several():
    with pytest.raises(DataError, match="'idx' takes one path, not 2"):
        open_files(("a", "b"), format="idx")


def test_arrays(tmp_path):
    refs, descriptors = share_arrays({"x": np.ones(2)}, tmp_path)
    assert isinstance(open_source(ArrayData(columns=refs), no_code), ArraySource)
    os.close(descriptors[0])


CODE = CodeRef(path="somewhere:thing")


def test_dataset_is_loaded_by_its_code():
    def load(code):
        assert code == CODE
        return [(1, 2)]

    assert isinstance(open_source(DatasetData(code=CODE), load), MapDatasetSource)


def test_dataset_that_only_iterates():
    source = open_source(DatasetData(code=CODE), lambda code: iter([(1, 2)]))
    assert isinstance(source, IterableDatasetSource)


def test_something_that_is_no_dataset_is_refused():
    with pytest.raises(DataError, match="int is not a dataset"):
        open_source(DatasetData(code=CODE), lambda code: 3)


def test_loader_function_is_called_with_the_share():
    source = open_source(LoaderData(code=CODE), lambda code: lambda share: [{"a": [share.index]}])
    assert next(source.batches(Share(4, 8, 0, 0), 1))["a"].tolist() == [4]


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        ("a.dummy", "1,3,17\n", [3, 17]),
        ("a.libfm", "1 0:0.5 17:1\n", [0, 17]),
        ("a.libsvm", "1 1:0.5 17:1\n", [0, 16]),
    ],
)
def test_sparse_text_is_known_by_name(tmp_path, name, text, ids, packed):
    path = tmp_path / f"{name}{packed}"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    source = open_files(str(path))
    (rows,) = source.read(source.shards()[0], ["features"])
    assert [item["id"] for item in rows.to_pylist()[0]["features"]] == ids


def test_first_id_of_libfm_files_can_be_given(tmp_path):
    (tmp_path / "a.libfm").write_text("1 1:1\n")
    source = open_files(str(tmp_path / "a.libfm"), options={"first_id": 1})
    (rows,) = source.read(source.shards()[0], ["features"])
    assert rows.to_pylist()[0]["features"][0]["id"] == 0


def test_a_directory_with_several_formats_is_told_of(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    pq.write_table(pa.table({"x": [2]}), tmp_path / "b.parquet")
    with pytest.warns(UserWarning, match=r"csv, parquet\), and is read as csv"):
        assert infer_format(str(tmp_path)) == "csv"
