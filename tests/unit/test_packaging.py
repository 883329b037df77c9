"""What the images install: the wheels hold all that is read at run time; the Dockerfile keeps its promises."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest

from release.__main__ import SOURCES

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PACKAGES = {".": ROOT / "operator" / "speculative_operator", "lab": ROOT / "lab" / "speculative_lab"}
"""Folder of a pyproject.toml -> the one package of its wheel."""
PROJECTS = {at: tomllib.loads((ROOT / at / "pyproject.toml").read_text())["project"] for at in PACKAGES}
PROJECT, LABORATORY = PROJECTS["."], PROJECTS["lab"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Dockerfile copies, and nothing that was built before."""
    place = tmp_path_factory.mktemp("sources")
    for copied in re.findall(r"^COPY (?!--from)(.+) (\S+)$", DOCKERFILE, re.MULTILINE):
        for name in copied[0].split():
            if (ROOT / name).is_dir():
                left_out = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
                shutil.copytree(ROOT / name, place / name, symlinks=True, ignore=left_out)
            elif not name.startswith("requirements/"):
                shutil.copy(ROOT / name, place / name)
    return place


@pytest.fixture(scope="module", params=PACKAGES)
def wheel(
    request: pytest.FixtureRequest, sources: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, set[str]]:
    """Where its pyproject.toml lies and the names in the wheel, built as the Dockerfile builds it."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(sources / request.param)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (built,) = out.glob("*.whl")
    return request.param, set(zipfile.ZipFile(built).namelist())


def test_a_wheel_holds_every_file_of_its_package_and_no_other(wheel: tuple[str, set[str]]) -> None:
    at, names = wheel
    package = PACKAGES[at]
    files = {str(path.relative_to(package.parent)) for path in package.rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    beside = {name for name in names - files if ".dist-info/" not in name}
    assert (files - names, beside) == (set(), set())
    assert [name for name in names if name.endswith("/LICENSE")]


def test_both_wheels_are_of_one_release() -> None:
    assert LABORATORY["version"] == PROJECT["version"]
    assert LABORATORY["dependencies"] == [f"{PROJECT['name']}=={PROJECT['version']}"]


def test_the_operators_image_holds_nothing_of_the_laboratory() -> None:
    stages = {stage.split()[2]: stage for stage in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]}
    wheels = {name: re.findall(r"^COPY --from=(\S+) /wheels", stage, re.MULTILINE) for name, stage in stages.items()}
    assert (wheels["operator-install"], wheels["emulator-install"]) == (["build"], ["build-lab"])
    assert "COPY lab" not in stages["build"]
    assert stages["build-lab"].startswith("build AS"), "so that the operator's wheel lies beside"


def test_the_image_runs_as_nobody_what_the_project_installs() -> None:
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    final = {stage.split()[2]: stage for stage in stages if "ENTRYPOINT" in stage}
    assert final.keys() == {"operator", "emulator"}
    for name, stage in final.items():
        assert re.search(r"^USER \d+:\d+$", stage, re.MULTILINE)
        (program,) = re.findall(r'^ENTRYPOINT \["([^"]+)"', stage, re.MULTILINE)
        assert program in {"operator": PROJECT, "emulator": LABORATORY}[name]["scripts"]


def test_the_operators_image_runs_the_jobs_and_the_emulators_does_not() -> None:
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    locks = {stage.split()[2]: re.findall(r"-r /src/(\w+)\.txt", stage) for stage in stages}
    assert (locks["operator-install"], locks["emulator-install"]) == (["operator"], ["emulator"])
    assert SOURCES["operator"][:3] == ("pyproject.toml", "--extra", "weights")
    assert SOURCES["emulator"][:3] == ("lab/pyproject.toml", "--extra", "emulator")


def test_what_the_first_page_installs_draws_tables() -> None:
    """A reader who follows it has all that the commands use."""
    (extra,) = re.findall(r"pip install '\.\[(\w+)\]'", (ROOT / "README.md").read_text())
    wanted = PROJECT["optional-dependencies"][extra]
    assert {"rich", "speculative-operator[weights]"} <= {re.split(r"[<>=~; ]", one)[0] for one in wanted}


def test_every_pin_serves_a_dependency() -> None:
    pinned = {
        re.split(r"==", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    groups = [group for one in PROJECTS.values() for group in one["optional-dependencies"].values()]
    wanted = [*PROJECT["dependencies"], *chain.from_iterable(groups)]
    named = {re.split(r"[\[<>=~; ]", one)[0].lower().replace("_", "-") for one in wanted} - {"speculative-operator"}
    assert named <= pinned, sorted(named - pinned)


def test_everything_can_be_imported_of_which_the_image_leaves_parts_out() -> None:
    """The Dockerfile's last line of the operator's installation, with the removed package out of reach."""
    (line,) = re.findall(r"python -c '(.*?)'", DOCKERFILE, re.DOTALL)
    (removed,) = re.findall(r"rm -r /opt/venv/lib/python3\*/site-packages/(\S+)", DOCKERFILE)
    hidden = f"import sys; sys.modules[{removed.replace('/', '.')!r}] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", hidden + line.replace("\\\n", "")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert importlib.util.find_spec(removed.replace("/", ".")), "nothing to remove: the build would fail"
