"""What several files of this folder ask for by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tests.unit.reconcile.releases import install
from tests.unit.reconcile.scripted import Tuner

from speculative_operator.reconcile.table import deciding


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> Tuner:
    script = Tuner()
    monkeypatch.setattr(deciding, "decide", script)
    return script


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return partial(install, monkeypatch)
