from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.engines.building import spec

from speculative_operator.domain import names
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import AcceleratorRequest, DeploymentSpec, Mode, ModelSource, Scheme, Weights
from speculative_operator.domain.table import KTable
from speculative_operator.engines.registry import engine_for


def environment(subject: DeploymentSpec) -> dict[str, dict[str, Any]]:
    made = engine_for(subject).container(resolve(subject), KTable.constant(1, 256))
    assert len({entry["name"] for entry in made.env}) == len(made.env), "a name occurs once"
    return {entry["name"]: dict(entry) for entry in made.env}


def test_every_folder_is_writable_under_any_user() -> None:
    made = environment(spec())
    for name in (
        "HOME", "HF_HOME", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR", "OUTLINES_CACHE_DIR",
    ):  # fmt: skip
        assert made[name]["value"].startswith(names.CACHE_MOUNT)
    assert made["USER"]["value"]
    assert made["VLLM_NO_USAGE_STATS"]["value"] == "1"


def test_payload_and_table_only_where_k_is_live() -> None:
    live = environment(spec())
    assert live["PYTHONPATH"]["value"] == names.PAYLOAD_MOUNT
    assert live["SPECULATIVE_TABLE_FILE"]["value"] == f"{names.TABLE_MOUNT}/{names.TABLE_KEY}"
    for other in (spec(version="0.23.0"), spec(mode=Mode.DISABLED), spec(mode=Mode.STATIC, num_speculative_tokens=3)):
        assert not {"PYTHONPATH", "SPECULATIVE_TABLE_FILE"} & environment(other).keys()


def test_users_variables_win_by_name() -> None:
    secret = {"name": "API", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    made = environment(spec(env=({"name": "HF_HOME", "value": "/data"}, secret, {"name": "PYTHONPATH", "value": "/x"})))
    assert made["HF_HOME"]["value"] == "/data"
    assert made["API"] == secret
    assert made["PYTHONPATH"]["value"] == f"{names.PAYLOAD_MOUNT}:/x", "both are found, the payload first"


def test_hub_token_comes_from_the_secret_and_may_be_absent() -> None:
    subject = replace(spec(), weights=Weights(secret_name="hf"))
    reference = environment(subject)["HF_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert reference == {"name": "hf", "key": "HF_TOKEN", "optional": True}
    assert "HF_HUB_OFFLINE" not in environment(subject)


def test_mounted_weights_need_no_hub() -> None:
    claim = ModelSource(Scheme.PVC, "w/m")
    head = ModelSource(Scheme.PVC, "w/h")
    subject = replace(spec(source=head, verifier={"source": claim}), weights=Weights(secret_name="hf"))
    assert environment(subject)["HF_HUB_OFFLINE"]["value"] == "1"
    assert "HF_TOKEN" not in environment(subject)
    assert "HF_HUB_OFFLINE" not in environment(spec(verifier={"source": claim})), "the drafter comes from the hub"


def test_a_speculator_by_its_own_name_finds_its_verifier_on_the_hub() -> None:
    claim = ModelSource(Scheme.PVC, "w/m")
    subject = replace(spec(source=claim, verifier={"source": claim}), weights=Weights(secret_name="hf"))
    assert "HF_HUB_OFFLINE" not in environment(subject)
    assert "HF_TOKEN" in environment(subject)


def test_what_the_vendors_software_needs() -> None:
    gaudi = replace(spec(), accelerator=AcceleratorRequest("habana.ai/gaudi", per_replica=2))
    gaudi = replace(gaudi, engine=replace(gaudi.engine, image="example.com/gaudi:1"))
    assert environment(gaudi)["PT_HPU_ENABLE_LAZY_COLLECTIVES"]["value"] == "true"
    assert "PT_HPU_ENABLE_LAZY_COLLECTIVES" not in environment(spec())
