"""Where the real engine and its small models are, or why they are not. Asked by everything that wants to run them.

Tests use it like this:

    from realengine import paths
    engine = paths.python()
    pytestmark = pytest.mark.skipif(engine is None, reason=paths.MISSING)
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

VLLM = "0.32.0"
TORCH = "2.13.0"
TRITON = "3.7.1"
"""The one that torch asks for; it lies in a folder of its own: on a CPU vLLM's V1 runner breaks where it is found."""
LOCK = Path(__file__).with_name("requirements.lock")
ROOT = Path(__file__).resolve().parents[2]
PYTHON_VARIABLE = "SPECULATIVE_VLLM_PYTHON"
MODELS_VARIABLE = "SPECULATIVE_TINY_MODELS"
DEVICE_VARIABLE = "SPECULATIVE_VLLM_DEVICE"
MISSING = "the real engine is not installed: make vllm (six gigabytes, some minutes)"
COMPLETE = "complete.json"
"""Written last into an environment; without it the environment is half an environment."""


def cache() -> Path:
    """SPECULATIVE_CACHE, else below XDG_CACHE_HOME, else below ~/.cache: as the development cluster's programs."""
    own = os.environ.get("SPECULATIVE_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "speculative-operator"


def environment() -> Path:
    """Where the environment of exactly these pins belongs, whether or not it is there."""
    pins = hashlib.sha256(f"{VLLM} {TORCH}\n".encode() + LOCK.read_bytes()).hexdigest()[:12]
    return cache() / f"vllm-{VLLM}-{pins}"


def python() -> Path | None:
    """The interpreter that can `import vllm`: SPECULATIVE_VLLM_PYTHON, else the installed one; None without either."""
    given = os.environ.get(PYTHON_VARIABLE)
    if given:
        return Path(given) if Path(given).exists() else None
    place = environment()
    return place / "bin" / "python" if (place / COMPLETE).exists() else None


def triton() -> Path:
    """Folder with Triton, whose interpreter runs the kernels of vLLM's V2 runner on a CPU."""
    return environment() / f"triton-{TRITON}"


def on_accelerator() -> bool:
    """Whether SPECULATIVE_VLLM_DEVICE says that the engine of SPECULATIVE_VLLM_PYTHON is a build for CUDA (`cuda`)."""
    return os.environ.get(DEVICE_VARIABLE, "cpu") == "cuda"


def models() -> Path:
    """Folder with `target`, `draft` and `eagle3`: SPECULATIVE_TINY_MODELS, else those of this repository."""
    given = os.environ.get(MODELS_VARIABLE)
    return Path(given) if given else ROOT / "dev" / "data" / "models"
