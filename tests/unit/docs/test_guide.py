"""The guide's code runs, and what it names exists."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from pages import FIRST_MODEL, GUIDE, PAGES, Block, blocks, name_of

import flambeau as fb
from flambeau import config
from flambeau.checkpoint.changes import CHANGEABLE
from flambeau.cli.app import app
from flambeau.config.choices import InitFrom
from flambeau.config.clusters import _KINDS
from flambeau.config.job_file import JobFile
from flambeau.config.optimizer import TABLE_OPTIMIZERS
from flambeau.config.yaml_text import parse_yaml
from flambeau.models.ctr import FIELD_MODELS
from flambeau.models.ctr.layers.sequence_models import SEQUENCE_MODELS
from flambeau.models.vision import VISION
from flambeau.observe import event
from flambeau.training.losses import _NAMED
from flambeau.training.metrics import METRICS

QUICK = [page for page in PAGES if page != FIRST_MODEL and any(blocks(page, "python"))]
CODE = [page for page in PAGES if any(blocks(page, "python", "py"))]
YAML = [block for page in PAGES for block in blocks(page, "yaml")]

SECTIONS: dict[str, type[config.Settings]] = {
    "The job": JobFile,
    "cluster.local": config.Local,
    "strategy.all_reduce": config.AllReduce,
    "strategy.parameter_server": config.ParameterServer,
    "strategy.hybrid": config.Hybrid,
    "optimizer": config.OptimizerSpec,
    "schedule": config.Schedule,
    "train, valid": config.FileData,
    "compute": config.Compute,
    "loading": config.Loading,
    "images": config.Images,
    "checkpoints": config.Checkpoints,
    "evaluation": config.Evaluation,
    "early_stopping": config.EarlyStopping,
    "observe": config.Observe,
    "recovery": config.Recovery,
    "init_from": InitFrom,
}
CLUSTER_PAGES = {"spark": "spark.md", "ray": "ray.md", "attached": "launchers.md", "ssh": "ssh.md"}


def where(block: Block) -> str:
    return f"{name_of(block.page)}:{block.line}"


def text_of(page: str) -> str:
    return (GUIDE / page).read_text()


@pytest.mark.parametrize("page", QUICK, ids=name_of)
def test_blocks_marked_python_run_one_after_the_other(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__", "torch": torch, "fb": fb}
    for block in blocks(page, "python"):
        source = "\n" * (block.line - 1) + block.code
        exec(compile(source, str(page), "exec"), names)


def calls(page: Path) -> Iterator[tuple[Block, ast.Call]]:
    for block in blocks(page, "python", "py"):
        for node in ast.walk(ast.parse(block.code)):
            if isinstance(node, ast.Call):
                yield block, node


@pytest.mark.parametrize("page", CODE, ids=name_of)
def test_calls_of_ours_have_arguments_that_exist(page: Path) -> None:
    for block, call in calls(page):
        known = _arguments(ast.unparse(call.func))
        unknown = {word.arg for word in call.keywords if word.arg} - known if known else set()
        assert not unknown, f"{where(block)}: {ast.unparse(call.func)} has no {unknown}"


def _arguments(function: str) -> set[str]:
    """The keyword arguments of something public of ours; none if it takes any."""
    name = function.removeprefix("fb.")
    owner = fb if function.startswith("fb.") else config
    found = getattr(owner, name, None)
    if isinstance(found, type) and issubclass(found, config.Settings):
        return set(found.model_fields)
    return set(inspect.signature(found).parameters) if found is fb.fit else set()


@pytest.mark.parametrize("page", CODE, ids=name_of)
def test_settings_given_as_dicts_have_keys_that_exist(page: Path) -> None:
    for block, call in calls(page):
        if ast.unparse(call.func) == "fb.fit":
            for word in call.keywords:
                if isinstance(word.value, ast.Dict):
                    _require_fields(str(word.arg), list(_keys(word.value)), where(block))


def _keys(values: ast.Dict) -> Iterator[str]:
    return (ast.literal_eval(key) for key in values.keys if key is not None)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_settings_in_running_text_have_keys_that_exist(page: Path) -> None:
    for section, values in re.findall(r"`(\w+)=(\{\"[^`]*\})`", page.read_text()):
        _require_fields(section, re.findall(r"[{ ]\"(\w+)\":", values))
    for section, field in re.findall(r"`(\w+)\.(\w+)`", page.read_text()):
        _require_fields(section, [field])


def _require_fields(section: str, names: list[str], where: str = "the page") -> None:
    # An optimizer's keys may be submodules or torch's own arguments.
    if section not in SECTIONS or section == "optimizer":
        return
    unknown = set(names) - SECTIONS[section].model_fields.keys()
    assert not unknown, f"{where}: {section} has no {unknown}"


@pytest.mark.parametrize("block", YAML, ids=where)
def test_job_files_are_accepted(block: Block) -> None:
    assert JobFile.parse(parse_yaml(block.code, where(block))).settings()


@pytest.mark.parametrize("section", SECTIONS)
def test_the_reference_has_every_key_with_its_default(section: str) -> None:
    _, _, rest = text_of("command-line.md").partition(f"\n### {section}\n")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", rest.partition("\n###")[0], re.MULTILINE))
    fields = _written(section)
    assert rows.keys() == fields.keys()
    expected = {name: _default(field) for name, field in fields.items()}
    expected |= {"run_dir": "by the file's name"} if section == "The job" else {}
    assert rows == expected


@pytest.mark.parametrize("kind", sorted(set(_KINDS) - {"local"}))
def test_the_page_of_a_cluster_names_every_setting(kind: str) -> None:
    spans = re.findall(r"`([^`\n]+)`", text_of(CLUSTER_PAGES[kind]) + text_of("cores.md"))
    named = {word for span in spans for word in re.findall(r"\w+", span)}
    # `meeting` is filled in by Flambeau, when the processes have met.
    assert not set(_KINDS[kind].model_fields) - {"meeting"} - named


def _written(section: str) -> dict[str, Any]:
    """The fields that are keys: of a strategy all but its kind, which its name says."""
    fields = SECTIONS[section].model_fields
    is_strategy = section.startswith("strategy.")
    return {name: field for name, field in fields.items() if not (is_strategy and name == "kind")}


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, config.Settings):
        return "see below"
    plain = list(value) if isinstance(value, tuple) else value
    return f"`{plain if isinstance(plain, str) else json.dumps(plain)}`"


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in _anchors(file), target


def _options() -> dict[str, set[str]]:
    group: Any = typer.main.get_command(app)
    return {name: _options_of(command) for name, command in group.commands.items()}


def _options_of(command: Any) -> set[str]:
    """Those of a command, or of all commands of a group."""
    inner = getattr(command, "commands", {}).values()
    own = {option for parameter in command.params for option in parameter.opts}
    return own.union(*map(_options_of, inner))


def test_the_command_line_page_has_every_command_and_option() -> None:
    text = text_of("command-line.md")
    missing = [
        f"{command} {option}"
        for command, options in _options().items()
        for option in options
        if option.startswith("--") and option not in _row_of(text, command)
    ]
    assert not missing


def _row_of(text: str, command: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| `flambeau {command}"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_shown_have_options_that_exist(page: Path) -> None:
    options = _options()
    for command, rest in re.findall(r"^ {4}flambeau (\w+)(.*)$", page.read_text(), re.MULTILINE):
        unknown = set(re.findall(r" (--[\w-]+)", rest)) - options[command]
        assert not unknown, f"flambeau {command} has no {unknown}"


def _mentioned(page: str) -> set[str]:
    return set(re.findall(r"`\"?([\w.]+)\"?`", text_of(page)))


def test_the_metrics_page_names_every_metric() -> None:
    assert METRICS.keys() <= _mentioned("metrics.md")


def test_the_losses_page_names_every_loss() -> None:
    assert _NAMED.keys() <= _mentioned("losses-and-steps.md")


def test_the_vision_page_names_every_model() -> None:
    plain = {name for name in VISION if not name.endswith("_bn")}
    assert plain <= _mentioned("vision.md")


def test_the_page_of_sequences_names_every_model() -> None:
    assert SEQUENCE_MODELS.keys() <= _mentioned("sequences-and-retrieval.md")


def test_the_recommenders_page_names_every_model_with_fields() -> None:
    assert FIELD_MODELS.keys() <= _mentioned("recommenders.md")


def test_the_tables_page_names_every_field_and_optimizer() -> None:
    assert {*config.TableSpec.model_fields, *TABLE_OPTIMIZERS} <= _mentioned("tables.md")


def _event_kinds() -> Iterator[str]:
    return (match for match in re.findall(r"^    (\w+) {2,}\w", event.__doc__ or "", re.MULTILINE))


def test_the_watching_page_names_every_kind_of_event() -> None:
    kinds = set(_event_kinds())
    assert "progress" in kinds
    assert kinds <= _mentioned("watching.md")


def test_the_checkpoints_page_names_every_setting_that_may_change() -> None:
    shown = {name for name in CHANGEABLE if not name.startswith("train.")}
    assert shown <= _mentioned("checkpoints.md")
