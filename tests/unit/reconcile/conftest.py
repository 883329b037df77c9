"""What several files of this folder ask for by name."""

from __future__ import annotations

import pytest
from tests.unit.reconcile.scripted import Tuner

from speculative_operator.reconcile import deciding


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> Tuner:
    script = Tuner()
    monkeypatch.setattr(deciding, "decide", script)
    return script
