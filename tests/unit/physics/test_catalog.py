"""Names find shapes; unknown names find nothing."""

from __future__ import annotations

import pytest

from speculative_operator.physics.catalog import find_accelerator, find_model, rows


@pytest.mark.parametrize("name", ["H100-SXM", "h100-sxm", "NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB HBM3", "H100"])
def test_one_accelerator_has_many_names(name: str) -> None:
    found = find_accelerator(name)
    assert found is not None
    assert (found.name, found.memory_bandwidth, found.bf16_flops) == ("H100-SXM", 3.35e12, 9.89e14)


@pytest.mark.parametrize("name", ["", "H1000", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "NVIDIA-L4-SHARED", "gpu"])
def test_unknown_or_sliced_accelerators_are_none(name: str) -> None:
    assert find_accelerator(name) is None


@pytest.mark.parametrize(
    "location", ["Qwen/Qwen3-8B", "hf://Qwen/Qwen3-8B", "/models/Qwen3-8B", "qwen/qwen3-8b", "Qwen3-8B"]
)
def test_a_model_is_found_by_location_or_last_part(location: str) -> None:
    found = find_model(location)
    assert found is not None
    assert (found.name, found.layers) == ("Qwen/Qwen3-8B", 36)


@pytest.mark.parametrize("location", ["", "/", "hf://", "Qwen/Qwen3-8B-finetuned", "other"])
def test_unknown_models_are_none(location: str) -> None:
    assert find_model(location) is None


def test_drafter_context_weighs_nearly_as_much_as_the_verifiers() -> None:
    verifier, speculator = find_model("Qwen/Qwen3-8B"), find_model("Qwen/Qwen3-0.6B")
    assert verifier is not None
    assert speculator is not None
    assert speculator.kv_bytes_per_token / verifier.kv_bytes_per_token == pytest.approx(0.78, abs=0.01)


@pytest.mark.parametrize("table", ["accelerators", "models", "acceptance"])
def test_every_row_names_its_source(table: str) -> None:
    found = list(rows(table))
    assert found
    assert all(row["source"].strip() for row in found)


def test_every_name_is_reachable() -> None:
    for row in rows("accelerators"):
        for alias in (row["name"], *row["aliases"].split("|")):
            found = find_accelerator(alias)
            assert found is not None, alias
            assert found.name == row["name"]
    for row in rows("models"):
        model = find_model(row["name"])
        assert model is not None
        assert model.parameters >= model.active_parameters > 0
