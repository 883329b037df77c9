"""GuideLLM, the load generator of `speculative bench`, as an image of the development cluster.

It needs torch and transformers, which the engine's environment has; what that lacks lies in a folder of its own beside
it, so that the engine meets none of it. Asked for by tests/e2e/test_bench.py and by the harness.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from devcluster.options import Image
from realengine import paths

LOCK = Path(__file__).with_name("guidellm.lock")


def image() -> Image | None:
    """The program that stands for GuideLLM's image, installed at need; None where the engine's environment is missing.
    Raises CalledProcessError where a package cannot be had."""
    engine = paths.python()
    if engine is None:
        return None
    folder = paths.cache() / f"guidellm-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
        subprocess.run([*pip, "--target", str(partial), "-r", str(LOCK)], check=True)
        script = partial / "bin" / "guidellm"
        script.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {engine} -m guidellm "$@"\n')
        script.chmod(0o755)
        partial.rename(folder)
    return Image((str(folder / "bin" / "guidellm"),), {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"})
