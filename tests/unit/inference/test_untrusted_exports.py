"""Loading an export runs none of its sender's code; each attack would leave a file behind."""

import io
import json
import logging
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flambeau as fb
from flambeau.checkpoint.soundness import file_entry
from flambeau.errors import DataError, UntrustedError
from flambeau.inference.export import ExportOptions
from flambeau.inference.export_description import read_description
from flambeau.runs.run_export import export_run
from flambeau.runs.trained_run import read_settings

sys.path.append(str(Path(__file__).parent))
from small_runs import clicks, write_run

PROGRAM = "models/model.json"
SAMPLES = "data/sample_inputs/model.pt"
WEIGHTS = "data/weights/model_weights_config.json"

Entries = dict[str, bytes]


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self._marker,)


def code(marker: Path) -> str:
    """An expression that makes a file."""
    return f"__import__('pathlib').Path({str(marker)!r}).touch()"


def saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    run = write_run(folder, "Mlp")
    export_run(run, read_settings(run), "latest", folder / "out", ExportOptions())
    return folder / "out"


@pytest.fixture
def export(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "out"))


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


def read(export: Path) -> Entries:
    with zipfile.ZipFile(export / "model.pt2") as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def write(export: Path, entries: Entries, root: str = "model/") -> None:
    """Replace the graph, as a sender would who knows of the checksums."""
    with zipfile.ZipFile(export / "model.pt2", "w") as archive:
        for name, content in entries.items():
            archive.writestr(f"{root}{name}" if name[0] != "/" else name[1:], content)
    agree(export)


def agree(export: Path, **changes: Any) -> None:
    """Write checksums that are those of the files."""
    described = read_description(export)
    if changes:
        described = described.model_copy(
            update={"graph": described.graph.model_copy(update=changes)}
        )
    names = [path.name for path in export.iterdir() if path.name.startswith("model.")]
    files = {name: file_entry(export / name) for name in names}
    described.model_copy(update={"files": files}).write(export)


def change_program(export: Path, change: Callable[[dict[str, Any]], object]) -> None:
    entries = read(export)
    program = json.loads(entries[PROGRAM])
    change(program)
    write(export, {**entries, PROGRAM: json.dumps(program).encode()})


def scores(export: Path, **options: Any) -> np.ndarray:
    found = fb.Predictor.load(export, **options).predict(clicks())
    return np.array(found["probabilities"].to_pylist())


def refused(export: Path, marker: Path, message: str) -> None:
    with pytest.raises(UntrustedError, match=rf"(?s){message}.*trust=True"):
        fb.Predictor.load(export).predict(clicks())
    assert not marker.exists()


def test_the_file_holds_no_pickle_and_only_known_entries(honest: Path) -> None:
    entries = read(honest)
    assert entries[SAMPLES] == b""
    weights = {f"data/weights/weight_{number}" for number in range(4)}
    others = {"archive_format", "archive_version", "byteorder", ".data/version"}
    configs = {WEIGHTS, "data/constants/model_constants_config.json"}
    more = {PROGRAM, SAMPLES, ".data/serialization_id"}
    assert entries.keys() == weights | others | configs | more


def test_sample_inputs_are_not_unpickled(export: Path, honest: Path, marker: Path) -> None:
    """So exports that were written with them load as they are."""
    write(export, {**read(export), SAMPLES: saved(((Touch(marker),), {}))})
    np.testing.assert_array_equal(scores(export), scores(honest))
    assert not marker.exists()
    logging.disable(logging.WARNING)  # of torch, whose own message cannot be formatted
    try:
        scores(export, trust=True)
    finally:
        logging.disable(logging.NOTSET)
    assert marker.exists()


def test_guards_do_not_run(export: Path, honest: Path, marker: Path) -> None:
    change_program(export, lambda program: program.update(guards_code=[f"{code(marker)} is None"]))
    np.testing.assert_array_equal(scores(export), scores(honest))
    assert not marker.exists()


@pytest.mark.parametrize("name", ["data/constants/model.pt", "data/weights/model.pt"])
def test_pickled_tensors_are_refused(export: Path, marker: Path, name: str) -> None:
    write(export, {**read(export), name: saved(Touch(marker))})
    refused(export, marker, "does not write its entry")
    with pytest.raises(Exception, match=r"(?s).+"):
        scores(export, trust=True)
    assert marker.exists()


@pytest.mark.parametrize("prefix", ["custom_obj_0", "opaque_obj_0"])
def test_objects_of_other_classes_are_refused(export: Path, marker: Path, prefix: str) -> None:
    content = pickle.dumps(Touch(marker))
    write(export, {**read(export), f"data/constants/{prefix}": content})
    refused(export, marker, prefix)


def test_weights_that_are_to_be_unpickled_are_refused(export: Path, marker: Path) -> None:
    entries = read(export)
    config = json.loads(entries[WEIGHTS])
    next(iter(config["config"].values()))["use_pickle"] = True
    pickled = {"data/weights/weight_0": saved(Touch(marker))}
    write(export, {**entries, **pickled, WEIGHTS: json.dumps(config).encode()})
    refused(export, marker, "is not a plain tensor")


def test_zeros_without_a_file_do_not_fill_the_memory(export: Path, marker: Path) -> None:
    entries = read(export)
    config = json.loads(entries[WEIGHTS])
    for payload in config["config"].values():
        payload["tensor_meta"]["sizes"] = [{"as_int": 10**13}]
    empty = {"data/weights/weight_0": b"", WEIGHTS: json.dumps(config).encode()}
    write(export, {**entries, **empty})
    refused(export, marker, "is not a plain tensor")


def test_a_program_that_torch_cannot_load_is_an_error_of_the_file(export: Path) -> None:
    def drop(program: dict[str, Any]) -> None:
        program["graph_module"]["graph"]["nodes"].pop()

    change_program(export, drop)
    with pytest.raises(DataError, match=r"model.pt2 cannot be loaded by torch 2\."):
        fb.Predictor.load(export)


def first_size(program: dict[str, Any]) -> dict[str, Any]:
    values = program["graph_module"]["graph"]["tensor_values"].values()
    sizes = [size for value in values for size in value["sizes"] if "as_expr" in size]
    return dict(sizes[0])["as_expr"]


@pytest.mark.parametrize(
    "expression",
    [
        "{code}",
        "Max(Integer(1), {code})",
        "Symbol('s0', positive={code})",
        "Symbol('s0', positive='a')",
        "Symbol(name={code!r})",
        "Integer(1).__class__",
        "(lambda: 1)()",
        "Pow(Integer(9), Integer(8))",
        "'a'",
        "s0 if s1 else s2",
        "+" * 20_000,
    ],
)
def test_code_in_a_size_is_refused(export: Path, marker: Path, expression: str) -> None:
    text = expression.format(code=code(marker))
    change_program(export, lambda program: first_size(program).update(expr_str=text))
    refused(export, marker, "its program has the size")


@pytest.mark.parametrize(
    "expression",
    [
        "s0 + 2*s1 // 3 - 1",
        "Mod(Symbol('s0', integer=True), Integer(-2))",
        "Pow(Symbol('s0', integer=True), Integer(2))",
        "Max(1, FloorDiv(Symbol('s77', positive=True, integer=True), Integer(2)))",
    ],
)
def test_sizes_that_only_compute_are_accepted(expression: str) -> None:
    from flambeau.inference.checked_program import require_plain

    require_plain({"expr_str": expression})


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("torch.os.system", "not one of torch's aten operators"),
        ("torch.ops.load_library", "not one of torch's aten operators"),
        ("torch.ops.aten.__class__.mro", "not one of torch's aten operators"),
        ("_operator.methodcaller", "not one of torch's aten operators"),
        ("torch.ops.aten.save.default", "reads or writes files"),
        ("torch.ops.aten.from_file.default", "reads or writes files"),
    ],
)
def test_a_function_that_is_no_operator_is_refused(
    export: Path, marker: Path, target: str, message: str
) -> None:
    def call(program: dict[str, Any]) -> None:
        program["graph_module"]["graph"]["nodes"][0]["target"] = target

    change_program(export, call)
    refused(export, marker, message)


def test_a_name_that_would_become_code_is_refused(export: Path, marker: Path) -> None:
    text = (export / "model.pt2").read_bytes()
    assert b'"tensors_0"' in text

    def rename(program: dict[str, Any]) -> None:
        whole = json.dumps(program).replace("tensors_0", f"tensors_0={code(marker)}")
        program.update(json.loads(whole))

    change_program(export, rename)
    refused(export, marker, "which may be code")


@pytest.mark.parametrize(
    "tree",
    [
        {"type": "collections.defaultdict", "context": {"default_factory_module": "evil"}},
        {"type": "builtins.dict", "context": '[{"__enum__": true, "fqn": "evil:E", "name": "A"}]'},
    ],
)
def test_arguments_that_import_modules_are_refused(
    export: Path, marker: Path, tree: dict[str, Any]
) -> None:
    def change(program: dict[str, Any]) -> None:
        signature = program["graph_module"]["module_call_graph"][0]["signature"]
        signature["in_spec"] = json.dumps([1, {**tree, "children_spec": []}])

    change_program(export, change)
    refused(export, marker, "its program (takes|has the keys)")


def test_subgraphs_and_other_objects_as_arguments_are_refused(export: Path, marker: Path) -> None:
    def change(program: dict[str, Any]) -> None:
        node = program["graph_module"]["graph"]["nodes"][0]
        node["inputs"][0]["arg"] = {"as_operator": "torch.os.system"}

    change_program(export, change)
    refused(export, marker, "'as_operator'")


@pytest.mark.parametrize("name", ["../../evil", "/elsewhere/byteorder", "data/aotinductor/a.so"])
def test_entries_with_odd_names_are_refused(export: Path, marker: Path, name: str) -> None:
    write(export, {**read(export), name: b"x"})
    refused(export, marker, "does not write its entry")


def test_an_entry_that_is_there_twice_is_refused(export: Path, marker: Path) -> None:
    graph = zipfile.ZipFile(export / "model.pt2", "a")
    (program,) = (name for name in graph.namelist() if name.endswith(PROGRAM))
    with graph as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(program, b"{}")
    agree(export)
    refused(export, marker, "does not write its entry")


def test_compressed_entries_are_refused(export: Path, marker: Path) -> None:
    entries = read(export)
    with zipfile.ZipFile(export / "model.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**entries, PROGRAM: b" " * 1_000_000}.items():
            archive.writestr(f"model/{name}", content)
    agree(export)
    refused(export, marker, "is compressed")


def test_a_pickle_is_not_loaded_because_the_export_says_so(export: Path, marker: Path) -> None:
    (export / "model.pt").write_bytes(saved(Touch(marker)))
    agree(export, format="torch", file="model.pt")
    refused(export, marker, "is a pickle")


class Writes(torch.nn.Module):
    """Writes a file when it is called, which TorchScript can."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        torch.save(x, self.path)
        return (x,)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_a_program(export: Path, marker: Path) -> None:
    torch.jit.script(Writes(str(marker))).save(str(export / "model.ts"))  # type: ignore[no-untyped-call]
    agree(export, format="torchscript", file="model.ts")
    refused(export, marker, "can write files")
    fb.Predictor.load(export, trust=True).predict(clicks())
    assert marker.exists()


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "link"])
def test_onnx_reads_no_file_from_elsewhere(
    export: Path, tmp_path: Path, marker: Path, location: str
) -> None:
    onnx = pytest.importorskip("onnx")
    (tmp_path / "secret").write_bytes(np.ones(2, np.float32).tobytes())
    (export / "link").symlink_to(tmp_path / "secret")
    tensor = onnx.TensorProto(
        name="w", data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value=location)
    output = onnx.helper.make_tensor_value_info("w", 1, [2])
    graph = onnx.helper.make_graph([], "g", [], [output], [tensor])
    (export / "model.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    agree(export, format="onnx", file="model.onnx")
    refused(export, marker, "which is no file beside it")


@pytest.mark.parametrize("file", ["../model.pt2", "/tmp/model.pt2"])
def test_files_are_in_the_folder_of_the_export(export: Path, file: str) -> None:
    agree(export, file=file)
    with pytest.raises(DataError, match="which is not in its folder"):
        fb.Predictor.load(export)


@pytest.mark.parametrize("file", ["model.pt2", "binding.json"])
def test_damage_to_a_file_is_noticed(export: Path, file: str) -> None:
    content = (export / file).read_bytes()
    number = b'"created": 1' if file == "binding.json" else b'"as_int": 1'
    assert number in content
    (export / file).write_bytes(content.replace(number, number[:-1] + b"2", 1))
    with pytest.raises(DataError, match=f"{file} is damaged"):
        fb.Predictor.load(export)


def test_an_export_without_checksums_loads_with_a_warning(export: Path, honest: Path) -> None:
    values = json.loads((export / "binding.json").read_text())
    del values["files"], values["crc32"]
    (export / "binding.json").write_text(json.dumps(values))
    with pytest.warns(UserWarning, match="written before exports had checksums"):
        found = scores(export)
    np.testing.assert_array_equal(found, scores(honest))
