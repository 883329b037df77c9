"""The health check for Argo CD, run by Lua itself. That for Flux is evaluated by an API server in tests/contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.reconcile.health import HEALTH

lupa = pytest.importorskip("lupa.lua51", reason="Lua comes with the extra dev")
FILE = Path(__file__).resolve().parents[2] / "manifests" / "health" / "argocd-cm.yaml"
KEY = "resource.customizations.health.serving.speculative.dev_SpeculativeDeployment"


def health_of(body: dict[str, Any]) -> tuple[str, str]:
    """Status and message, by the script of the file, without Lua's libraries of files and processes."""
    script = yaml.safe_load(FILE.read_text())["data"][KEY]
    runtime = lupa.LuaRuntime(register_eval=False, register_builtins=False)
    run = runtime.eval(f"function(obj)\n{script}\nend")
    found = run(runtime.table_from(body, recursive=True))
    return found["status"], found["message"]


@pytest.mark.parametrize("made", HEALTH, ids=lambda made: made.__name__)
def test_argo_cd_shows_the_health_of_each_object(made: Callable[[], dict[str, Any]]) -> None:
    status, message = health_of(made())
    assert status == HEALTH[made][0]
    assert message


@pytest.mark.parametrize("body", [{}, {"status": {}}, {"status": {"conditions": []}}])
def test_an_object_that_nobody_has_looked_at_progresses(body: dict[str, Any]) -> None:
    assert health_of({"metadata": {"generation": 1}, **body})[0] == "Progressing"
