"""The trainer's image on a CPU: the engine, and on top of it by requirements/trainer.txt the library speculators.

That lies in a folder of its own beside the engine, so that engines which serve meet none of it. Asked for by `training`
and by the harness.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from devcluster.options import Image
from realengine import paths
from realengine.serving import CPU_FLAGS, environment

LOCK = paths.ROOT / "requirements" / "trainer.txt"
ENGINE_ARGS = ("--dtype", "float32", "--max-num-seqs", "32", *CPU_FLAGS)
"""Added to those of the engines that answer and that serve hidden states."""
TRAINER_ARGS = (
    *("--num-workers", "0", "--draft-attn-impl", "sdpa", "--loss-implementation", "eager"),
    *("--hidden-states-dtype", "float32", "--optimizer", "adamw", "--lr", "2e-3", "--max-anchors", "64"),
)
"""Added to those of the trainer: plain torch instead of kernels of Triton, and a rate at which so small a speculator
learns fast."""
_ENGINE = 'export PYTHONPATH={folder}\n[ "$1" = serve ] && shift\nexec {python} -P {here}/image.py "$@" {engine}\n'
_PYTHON = """\
export PYTHONPATH={folder}
[ "$2" = speculators.train ] && shift 2 && exec {python} -P {here}/train.py "$@" {trainer}
exec {python} "$@"
"""


def folder() -> Path:
    """Where the packages of exactly this lock file belong, whether or not they are there."""
    return paths.cache() / f"speculators-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"


def image() -> Image | None:
    """The programs that stand for the trainer's image, installed at need; None where the engine's environment is
    missing. Raises CalledProcessError where a package cannot be had."""
    engine = paths.python()
    if engine is None:
        return None
    place = folder()
    if not place.exists():
        partial = place.with_name(f"{place.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
        subprocess.run([*pip, "--require-hashes", "--target", str(partial), "-r", str(LOCK)], check=True)
        partial.rename(place)
    _lay(place)
    values = {"folder": str(place), "python": str(engine), "here": str(Path(__file__).parent)}
    values |= {"engine": " ".join(ENGINE_ARGS), "trainer": " ".join(TRAINER_ARGS)}
    for name, text in (("vllm", _ENGINE), ("python3", _PYTHON)):
        _write(place / "programs" / name, f"#!/bin/sh\n{text.format(**values)}", 0o755)
    variables = {key: value for key, value in environment(Path("/tmp")).items() if key.startswith(("VLLM_", "OMP_"))}  # noqa: S108
    path = f"{place / 'programs'}:/usr/local/bin:/usr/bin:/bin"
    return Image(("/bin/sh",), {**variables, "REALENGINE_FORK": "1", "PATH": path})


def _lay(place: Path) -> None:
    """Bring our plug-in up to date, which has vLLM hand out hidden states on a CPU."""
    name, told = "speculative_states", place / "speculative_states-0.1.dist-info"
    _write(place / f"{name}.py", (Path(__file__).with_name("overlay") / f"{name}.py").read_text())
    _write(told / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    _write(told / "entry_points.txt", f"[vllm.general_plugins]\n{name} = {name}:register\n")


def _write(path: Path, content: str, mode: int = 0o644) -> None:
    if path.exists() and path.read_text() == content:
        return
    path.parent.mkdir(exist_ok=True)
    draft = path.with_name(f"{path.name}.partial")
    draft.write_text(content)
    draft.chmod(mode)
    draft.rename(path)
