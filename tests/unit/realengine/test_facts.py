"""Facts are read from a release's source as the engine would run it, and rows say where each begins and ends."""

from __future__ import annotations

from pathlib import Path

from realengine.facts import facts_of, ranges
from speculative_operator.pairing.pair import Fact

SPECULATIVE = """
class SpeculativeConfig:
    def hf_config_override(hf_config):
        if hf_config.model_type in ("one", "two") or hf_config.architectures[0] == "ThreeForCausalLM":
            return {"n_predict": 1}
        if "key" in hf_config.to_dict():
            return None

    def __post_init__(self):
        if "eagle-" in self.draft_model_config.model.lower():
            self.method = "eagle"
"""
REGISTRY = """
_TEXT_GENERATION_MODELS = {
    "PlainForCausalLM": ("plain", "PlainForCausalLM"),
    "DeepForCausalLM": ("deep", "DeepForCausalLM"),
    "RelayedForCausalLM": ("relayed", "RelayedForCausalLM"),
    "LaterForCausalLM": ("later", "LaterForCausalLM"),
}
"""
DEEP = """
class DeepModel:
    pass


class DeepForCausalLM(nn.Module, SupportsEagle3):
    def __init__(self):
        self.model = DeepModel()
"""


def source(place: Path) -> Path:
    files = {
        "config/speculative.py": SPECULATIVE,
        "transformers_utils/configs/speculators/algos.py": '@register_speculator("eagle3")\ndef update(): ...',
        "v1/worker/gpu/model_runner.py": "verify_supports_aux_hidden_states_over_pp(model)",
        "model_executor/models/registry.py": REGISTRY,
        "model_executor/models/plain.py": "class PlainForCausalLM(nn.Module): ...",
        "model_executor/models/deep.py": DEEP,
        "model_executor/models/relayed.py": DEEP.replace("Deep", "Relayed").replace(
            "    pass", "    supports_aux_hidden_states_over_pp = True"
        ),
        "model_executor/models/later.py": "from vllm.model_executor.models.relayed import RelayedForCausalLM\n\n\n"
        "class LaterForCausalLM(RelayedForCausalLM): ...",
    }
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


def test_the_facts_of_a_release(tmp_path: Path) -> None:
    assert set(facts_of(source(tmp_path))) == {
        (Fact.RENAMED, "eagle-"),
        (Fact.FORMAT, "eagle3"),
        (Fact.MODULES, "one"),
        (Fact.MODULES, "two"),
        (Fact.MODULES, "ThreeForCausalLM"),
        (Fact.NO_INNER_STATES, "PlainForCausalLM"),
        (Fact.NO_RELAY, "DeepForCausalLM"),
        (Fact.RELAY, "RelayedForCausalLM"),
        (Fact.RELAY, "LaterForCausalLM"),
    }


def test_a_fact_has_a_row_for_each_range_of_releases() -> None:
    one, two = (Fact.FORMAT, "eagle3"), (Fact.RENAMED, "dflash")
    found = {"0.1.0": {one}, "0.2.0": {one, two}, "0.3.0": {two}, "0.10.0": {one, two}}
    assert list(ranges(found)) == [
        ("Read", "", "0.1.0", "0.10.0"),
        ("Format", "eagle3", "0.1.0", "0.3.0"),
        ("Format", "eagle3", "0.10.0", ""),
        ("Renamed", "dflash", "0.2.0", ""),
    ]
