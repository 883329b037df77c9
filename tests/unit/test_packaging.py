"""What the image installs: the wheel holds all that is read at run time; the Dockerfile keeps its promises."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest

from release.__main__ import SOURCES

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "operator" / "speculative_operator"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names in the wheel, built as the Dockerfile builds it."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (built,) = out.glob("*.whl")
    return set(zipfile.ZipFile(built).namelist())


def test_the_wheel_holds_every_file_of_the_package(wheel: set[str]) -> None:
    files = {str(path.relative_to(PACKAGE.parent)) for path in PACKAGE.rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert files <= wheel, sorted(files - wheel)
    assert not {name for name in wheel if name.startswith(("devcluster/", "demo/", "bench/", "tests/"))}


def test_the_image_runs_as_nobody_what_the_project_installs() -> None:
    stages = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    final = {stage.split()[2]: stage for stage in stages if "ENTRYPOINT" in stage}
    assert final.keys() == {"operator", "emulator"}
    for stage in final.values():
        assert re.search(r"^USER \d+:\d+$", stage, re.MULTILINE)
        (program,) = re.findall(r'^ENTRYPOINT \["([^"]+)"', stage, re.MULTILINE)
        assert program in PROJECT["scripts"]


def test_the_operators_image_runs_the_jobs_and_the_emulators_does_not() -> None:
    stages = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    locks = {stage.split()[2]: re.findall(r"-r /src/(\w+)\.txt", stage) for stage in stages}
    assert (locks["operator-install"], locks["emulator-install"]) == (["operator"], ["emulator"])
    extras = {name: source[-1] for name, source in SOURCES.items()}
    assert (extras["operator"], extras["emulator"]) == ("weights", "emulator")


def test_every_dependency_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    section = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    lines = [line.strip() for line in section.splitlines() if line.strip().startswith('"')]
    bare = [line for line in lines if "#" not in line and "speculative-operator" not in line]
    assert not bare


def test_every_pin_serves_a_dependency() -> None:
    pinned = {
        re.split(r"==", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    wanted = [*PROJECT["dependencies"], *chain.from_iterable(PROJECT["optional-dependencies"].values())]
    named = {re.split(r"[\[<>=~; ]", one)[0].lower().replace("_", "-") for one in wanted} - {"speculative-operator"}
    assert named <= pinned, sorted(named - pinned)
