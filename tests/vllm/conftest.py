"""The real engine, for tests that need one: skipped with the reason where it is not installed.

Not part of `make test`: an engine takes half a minute to start. Run them with `pytest tests/vllm`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from realengine import paths


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """The interpreter that can `import vllm`."""
    found = paths.python()
    if found is None:
        pytest.skip(paths.MISSING)
    return found


@pytest.fixture(scope="session")
def small_models() -> Path:
    """Folder with `target`, `draft` and `eagle3`."""
    return paths.models()
