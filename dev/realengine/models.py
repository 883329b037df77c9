"""Small models of the shapes that the tests need, with random weights: for machines without the trained ones.

Everything can be asserted with them but how much is accepted: a random draft agrees with a random verifier by chance.
Written by the engine's own environment, which has what writing them takes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from realengine import paths

_MAKER = Path(__file__).with_name("random_models.py")


class ModelsError(RuntimeError):
    """The folder of models is not one."""


def made(folder: Path, python: Path, report: Callable[[str], None]) -> Path:
    """The folder, with `target`, `draft` and `eagle3` in it; random ones are made where it is missing."""
    if all((folder / role / "config.json").exists() for role in paths.ROLES):
        return folder
    if folder.exists() and any(folder.iterdir()):
        raise ModelsError(f"{folder} has not all of {', '.join(paths.ROLES)}; name another folder by --models")
    report(f"making random models in {folder}")
    subprocess.run([python, "-P", _MAKER, folder], check=True, timeout=300)
    return folder
