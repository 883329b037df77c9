"""Examples: each is served by its engine without a complaint, and every kind that pages claim has one. That the API
server accepts them is of tests/contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from tests.unit.failing import failing

from speculative_operator.api.convert import to_domain
from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method, Mode
from speculative_operator.engines.registry import engine_for

ROOT = Path(__file__).resolve().parents[2]
PATHS = sorted((ROOT / "examples").rglob("*.yaml"))


def manifests(path: Path) -> list[dict[str, Any]]:
    """The SpeculativeDeployments of one file."""
    return [one for one in yaml.safe_load_all(path.read_text()) if one["kind"] == "SpeculativeDeployment"]


def objects(path: Path) -> list[DeploymentSpec]:
    return [
        to_domain({**one, "metadata": {"namespace": "models", "uid": "u", "generation": 1, **one["metadata"]}})
        for one in manifests(path)
    ]


EVERY = [one for path in PATHS for one in objects(path)]


def test_their_engines_serve_them() -> None:
    assert failing(served, PATHS) == []


def served(path: Path) -> None:
    for spec in objects(path):
        assert [one.message for one in engine_for(spec).refusals(spec)] == []
        engine = engine_for(spec)
        assert engine.knobs(spec).max_batch > 0
    assert path.read_text().startswith("# "), "says what it is for"


def test_names_are_unique_so_that_all_can_be_tried_beside_each_other() -> None:
    plain = [one.name for path in PATHS if path.parent.name != "emulator" for one in objects(path)]
    assert sorted(plain) == sorted(set(plain))


def test_every_kind_that_is_served_has_an_example() -> None:
    assert {one.speculation.mode for one in EVERY} == set(Mode)
    assert {one.engine.type for one in EVERY} == set(EngineType)
    methods = {one.speculator.method for one in EVERY if one.speculator is not None}
    assert methods == set(Method)
    assert {one.accelerator.vendor for one in EVERY} == set(Vendor) - {Vendor.OTHER}


def test_every_cache_has_an_example() -> None:
    specs = [one["spec"] for path in PATHS for one in manifests(path)]
    caches = [set((spec.get("weights") or {}).get("cache") or {}) for spec in specs]
    for kind in ("claimName", "nodePath", "emptyDir"):
        assert [cache for cache in caches if kind in cache], kind


def test_no_example_runs_an_emulator_but_those_that_say_so() -> None:
    """The name of its image belongs to nobody in public registries."""
    assert [
        path.name for path in PATHS if "emulator" in path.read_text().lower() and path.parent.name != "emulator"
    ] == []
