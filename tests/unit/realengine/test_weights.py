"""What the harness reads out of pods and logs: which folder an engine loads, by manifest and by its own words."""

from __future__ import annotations

import json
from typing import Any

from realengine.e2e.weights import folders, loaded, told
from realengine.scene import Wish

VERIFIER, DRAFTER = "/m/.speculative-cache/models/aa", "/m/.speculative-cache/models/bb"
LOG = (
    "(EngineCore pid=12) INFO 11-21 23:00:30 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
    f"model='{VERIFIER}', speculative_config={{}}, tokenizer='{VERIFIER}', skip_tokenizer_init=False"
)
DRAFTING = f"SpeculativeConfig(method='draft_model', model='{DRAFTER}', num_spec_tokens=4)"
PAIR = {"verifierPin": {"key": "aa"}, "speculatorPin": {"key": "bb"}}


def pod(*, read_only: bool = True, drafting: bool = True) -> dict[str, Any]:
    config = json.dumps({"method": "draft_model", "model": DRAFTER})
    more = ["--speculative-config", config] if drafting else []
    mounts = [{"name": "claim-0", "mountPath": "/m", "readOnly": read_only}, {"name": "tmp", "mountPath": "/tmp"}]
    engine = {"args": [VERIFIER, *more], "volumeMounts": mounts}
    volumes = [{"name": "claim-0", "persistentVolumeClaim": {"claimName": "weights"}}, {"name": "tmp", "emptyDir": {}}]
    return {"spec": {"containers": [engine], "volumes": volumes}}


def test_folders_are_those_of_the_pins_below_a_claim_that_can_only_be_read() -> None:
    assert folders(pod(), PAIR) == {"verifier": VERIFIER, "speculator": DRAFTER}
    assert folders(pod(), {"verifierPin": {"key": "aa"}}) == {"verifier": VERIFIER}
    assert folders(pod(read_only=False), PAIR) == {}


def test_arguments_name_what_is_to_be_loaded() -> None:
    assert told(pod()) == {"verifier": VERIFIER, "speculator": DRAFTER}
    assert told(pod(drafting=False)) == {"verifier": VERIFIER}


def test_the_log_names_what_is_loaded() -> None:
    assert loaded(LOG.format(DRAFTING), drafter=True) == {"verifier": VERIFIER, "speculator": DRAFTER}
    assert loaded(LOG.format(None), drafter=False) == {"verifier": VERIFIER}
    assert loaded(LOG.format(None), drafter=True) == {"verifier": VERIFIER}, "nothing is made up"
    assert loaded("", drafter=False) == {}


def test_models_come_from_the_hub_by_way_of_a_cache() -> None:
    spec = Wish("draft_model").manifest()["spec"]
    assert spec["verifier"]["model"].startswith("hf://")
    assert spec["speculator"]["model"].startswith("hf://")
    assert spec["weights"]["cache"]["claimName"] == "weights"
    assert "model" not in Wish("ngram").manifest()["spec"]["speculator"]
    assert Wish("eagle3", mode="Disabled").drafts == ""
