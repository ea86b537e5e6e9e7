import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from flambeau.cli.doctor import Check, report, show
from flambeau.config.choices import ClusterChoice


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in PATH, at first empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return folder


def install(program: Path, script: str) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def find(name: str, timeout: float = 10.0) -> Check:
    return next(check for check in report(timeout) if check.name == name)


def printed(checks: list[Check], terminal: bool) -> str:
    file = io.StringIO()
    show(checks, Console(file=file, width=120, force_terminal=terminal))
    return file.getvalue()


def test_what_a_job_needs_is_found_here() -> None:
    ok = {check.name for check in report() if check.ok}
    assert {"Python", "torch", "network"} <= ok


def test_every_check_that_fails_says_what_to_do() -> None:
    failed = [check for check in report() if not check.ok]
    assert "Java" in {check.name for check in failed}
    assert all(check.remedy for check in failed)


def test_only_what_this_version_can_use_is_listed() -> None:
    engines = {
        "pyspark": "spark",
        "Java": "spark",
        "ray": "ray",
        "ssh": "ssh",
        "launcher": "attached",
    }
    listed = {engines[check.name] for check in report() if check.name in engines}
    assert listed == set(ClusterChoice.model_fields) - {"local"}


def test_torch_is_found_without_importing_it() -> None:
    code = (
        "import sys; from flambeau.cli.doctor import report; report(); "
        "print('torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, env=environment, text=True, timeout=60) == "False\n"


def test_a_missing_java_names_its_package() -> None:
    assert find("Java").remedy == "apt-get install openjdk-17-jre-headless"


def test_java_is_found_with_its_version(programs: Path) -> None:
    install(programs / "java", """echo 'openjdk version "17.0.15" 2025-04-15' >&2""")
    java = find("Java")
    assert java.ok
    assert 'openjdk version "17.0.15"' in java.detail


def test_java_from_java_home_is_used_first(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(programs / "java", """echo 'openjdk version "17.0.1"' >&2""")
    install(tmp_path / "jdk" / "bin" / "java", """echo 'openjdk version "21.0.2"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert '"21.0.2"' in find("Java").detail


def test_a_java_home_without_java_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = find("Java")
    assert not java.ok
    assert "unset JAVA_HOME" in str(java.remedy)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_a_java_too_old_for_spark_4_is_not_enough(programs: Path, version: str) -> None:
    install(programs / "java", f"""echo 'openjdk version "{version}"' >&2""")
    java = find("Java")
    assert not java.ok
    assert "Spark 4 needs 17" in java.detail


def test_options_that_java_picks_up_do_not_hide_its_version(programs: Path) -> None:
    lines = 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.15"'
    install(programs / "java", f"echo '{lines}' >&2")
    assert find("Java").detail.startswith('openjdk version "17.0.15"')


def test_a_program_that_hangs_is_given_up(programs: Path) -> None:
    install(programs / "java", "while :; do :; done")
    assert find("Java", timeout=0.05).detail.endswith("/java did not answer within 0.05 s")


def test_a_program_that_cannot_be_run_is_reported(programs: Path) -> None:
    install(programs / "java", "")
    (programs / "java").write_text("#!/no/such/interpreter\n")
    assert "java cannot be run" in find("Java").detail


def test_without_a_terminal_a_finding_is_a_plain_line() -> None:
    text = printed(
        [Check("pyspark", False, "not installed", "pip install 'flambeau[spark]'")], False
    )
    assert text.splitlines() == [
        "no  pyspark  not installed",
        "             -> pip install 'flambeau[spark]'",
    ]


def test_on_a_terminal_the_remedy_is_in_the_table_as_it_is_typed() -> None:
    text = printed(
        [Check("pyspark", False, "not installed", "pip install 'flambeau[spark]'")], True
    )
    assert "pip install 'flambeau[spark]'" in text
