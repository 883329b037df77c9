from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from tests.unit.engines.building import SMALL_QWEN, spec, valued
from tests.unit.failing import failing

from speculative_operator.domain.resolved import ResolvedSpec, resolve
from speculative_operator.domain.spec import (
    DeploymentSpec,
    LoraLimits,
    Method,
    Mode,
    ModelSource,
    OffPolicy,
    Scheme,
    Speculator,
)
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import EngineContainer, ImageMount, PvcMount
from speculative_operator.engines.registry import engine_for

TABLE = KTable.from_rows([[1, 16, 3], [17, 256, 1]])


def container(subject: DeploymentSpec, table: KTable = TABLE) -> EngineContainer:
    engine = engine_for(subject)
    assert engine.refusals(subject) == ()
    return engine.container(resolve(subject), table)


def config(made: EngineContainer) -> dict[str, Any]:
    parsed = json.loads(valued(made.args, "--speculative-config"))
    assert isinstance(parsed, dict)
    return parsed


def test_whole_command_line_of_a_draft_model_pair() -> None:
    made = container(spec(Method.DRAFT_MODEL, source=SMALL_QWEN, max_speculative_tokens=5))
    boot = "[[1,252,1],[253,253,5],[254,254,3],[255,256,0]]"
    assert made.args == (
        "Qwen/Qwen3-8B",
        *("--served-model-name", "qwen", "--host", "0.0.0.0", "--port", "8000"),
        *("--max-num-seqs", "256", "--shutdown-timeout", "120", "--tensor-parallel-size", "1"),
        "--speculative-config",
        '{"method":"draft_model","model":"Qwen/Qwen3-0.6B","num_speculative_tokens":5,'
        f'"num_speculative_tokens_per_batch_size":{boot}}}',
        *("--scheduler-cls", "speculative_scheduler.scheduler"),
        *("--worker-extension-cls", "speculative_worker.Extension", "--max-cudagraph-capture-size", "1024"),
    )
    assert made.image == "vllm/vllm-openai:v0.32.0"
    variables = {entry["name"]: entry.get("value") for entry in made.env}
    assert "VLLM_USE_V2_MODEL_RUNNER" not in variables, "the engine chooses V2 by itself"
    assert variables["SPECULATIVE_OFF_STEPS"] == "64"


def test_the_worker_makes_drafters_follow_k_whatever_the_policy() -> None:
    """And is told to skip the speculator only where that is asked for."""
    assert failing(follows, product(Method, OffPolicy)) == []


def follows(case: tuple[Method, OffPolicy]) -> None:
    method, policy = case
    made = container(spec(method, off_policy=policy))
    worker = method not in (Method.SUFFIX, Method.NGRAM_GPU, Method.MEDUSA)
    assert ("--worker-extension-cls" in made.args) is worker
    told = {entry["name"] for entry in made.env}
    assert ("SPECULATIVE_OFF_STEPS" in told) is (worker and policy is OffPolicy.SKIP)
    older = container(spec(method, off_policy=policy, version="0.31.0"))
    assert "--worker-extension-cls" not in older.args, "the V1 runner has vLLM's own K = 0"
    assert "SPECULATIVE_OFF_STEPS" not in {entry["name"] for entry in older.env}


def test_every_field_of_the_verifier_reaches_the_engine() -> None:
    fields = {
        "source": ModelSource(Scheme.HF, "a/b", "abc123"),
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 2,
        "max_model_len": 32768,
        "max_num_seqs": 64,
        "dtype": "bfloat16",
        "quantization": "fp8",
        "kv_cache_dtype": "fp8_e4m3",
        "gpu_memory_utilization_percent": 85,
    }
    made = container(spec(None, verifier=fields, args=("--enable-chunked-prefill",)))
    assert made.args == (
        *("a/b", "--served-model-name", "qwen", "--host", "0.0.0.0", "--port", "8000", "--revision", "abc123"),
        *("--max-num-seqs", "64", "--shutdown-timeout", "120"),
        *("--tensor-parallel-size", "4", "--pipeline-parallel-size", "2", "--max-model-len", "32768"),
        *("--dtype", "bfloat16", "--quantization", "fp8", "--kv-cache-dtype", "fp8_e4m3"),
        *("--gpu-memory-utilization", "0.85", "--enable-chunked-prefill"),
    )
    assert made.shared_memory


def test_live_never_depends_on_the_table_in_force() -> None:
    subject = spec()
    others = (KTable.constant(0, 256), KTable.constant(7, 8), TABLE)
    first, *rest = (container(subject, table) for table in others)
    assert all(made == first for made in rest)
    assert first.payload


def inert() -> ResolvedSpec:
    """Pods that were found not to re-read their table."""
    found = resolve(spec())
    return replace(found, engine=replace(found.engine, live=False))


def test_table_actuator_carries_the_table() -> None:
    made = container(inert(), KTable.from_rows([[1, 16, 3], [17, 999, 0]]))
    assert config(made)["num_speculative_tokens"] == 3
    assert config(made)["num_speculative_tokens_per_batch_size"] == [[1, 16, 3], [17, 256, 0]]
    assert "--scheduler-cls" not in made.args
    assert not made.payload
    off = config(container(inert(), KTable.constant(0, 256)))
    assert off["num_speculative_tokens"] == 1, "vLLM refuses 0 there; the schedule says 0"
    assert off["num_speculative_tokens_per_batch_size"] == [[1, 256, 0]]


def test_restart_actuator_carries_one_k_or_no_drafter() -> None:
    subject = spec(Method.MEDUSA, off_policy=OffPolicy.REMOVE)
    assert config(container(subject, KTable.constant(4, 256))) == {
        "method": "medusa",
        "model": "someone/head",
        "num_speculative_tokens": 4,
    }
    assert "--speculative-config" not in container(subject, KTable.constant(0, 256)).args


def test_static_constant_has_no_schedule() -> None:
    made = container(spec(mode=Mode.STATIC, num_speculative_tokens=5), KTable.constant(5, 256))
    assert config(made) == {"method": "eagle3", "model": "someone/head", "num_speculative_tokens": 5}


def test_revision_and_parallelism_of_the_drafter() -> None:
    subject = spec(source=ModelSource(Scheme.HF, "a/head", "r1"), draft_tp=1, verifier={"tensor_parallel_size": 2})
    assert config(container(subject)) | {"num_speculative_tokens_per_batch_size": 0} == {
        "method": "eagle3",
        "model": "a/head",
        "revision": "r1",
        "draft_tensor_parallel_size": 1,
        "num_speculative_tokens": 7,
        "num_speculative_tokens_per_batch_size": 0,
    }


@pytest.mark.parametrize("method", [Method.MTP, Method.DSPARK, Method.NGRAM, Method.SUFFIX, Method.NGRAM_GPU])
def test_methods_without_weights_name_no_model(method: Method) -> None:
    parsed = config(container(spec(method, source=None)))
    assert parsed["method"] == method
    assert "model" not in parsed


def test_claims_and_images_are_mounted() -> None:
    claim = ModelSource(Scheme.PVC, "weights/qwen/8b")
    made = container(spec(source=ModelSource(Scheme.PVC, "weights/heads/h"), verifier={"source": claim}))
    assert made.args[0] == "/mnt/models/weights/qwen/8b"
    assert config(made)["model"] == "/mnt/models/weights/heads/h"
    assert made.pvc_mounts == (PvcMount("weights", "/mnt/models/weights"),), "one claim is mounted once"
    whole = container(spec(None, verifier={"source": ModelSource(Scheme.PVC, "weights")}))
    assert whole.args[0] == "/mnt/models/weights"
    image = ModelSource(Scheme.OCI, "example.com/qwen:1")
    made = container(spec(source=ModelSource(Scheme.OCI, "example.com/head:2"), verifier={"source": image}))
    assert made.args[0] == "/mnt/models/verifier"
    assert config(made)["model"] == "/mnt/models/speculator"
    assert made.image_mounts == (
        ImageMount("example.com/qwen:1", "/mnt/models/verifier"),
        ImageMount("example.com/head:2", "/mnt/models/speculator"),
    )


def test_a_pod_without_drafter_mounts_no_drafter() -> None:
    claim = ModelSource(Scheme.PVC, "heads/h")
    subject = spec(Method.MEDUSA, source=claim, off_policy=OffPolicy.REMOVE)
    assert container(subject, KTable.constant(0, 256)).pvc_mounts == ()
    assert container(subject, KTable.constant(2, 256)).pvc_mounts != ()
    assert container(spec(source=claim, mode=Mode.DISABLED), KTable.constant(0, 256)).pvc_mounts == ()


def test_old_releases_lack_the_drain() -> None:
    old = container(spec(version="0.11.0+rhai5"), KTable.constant(3, 256))
    assert "--shutdown-timeout" not in old.args
    assert old.shutdown_seconds == 0
    new = container(spec())
    assert new.shutdown_seconds == int(valued(new.args, "--shutdown-timeout"))


def test_startup_budget_grows_and_never_undercuts_the_engine() -> None:
    claim = ModelSource(Scheme.PVC, "w/m")
    local = spec(None, verifier={"source": claim})
    assert 600 < container(local).startup_seconds < container(spec(None)).startup_seconds
    assert container(spec(None)).startup_seconds < container(spec()).startup_seconds
    own = {entry["name"]: entry.get("value") for entry in container(spec()).env}
    assert own["VLLM_ENGINE_READY_TIMEOUT_S"] == str(container(spec()).startup_seconds)


def test_image_of_the_user_wins() -> None:
    subject = spec()
    assert container(replace(subject, engine=replace(subject.engine, image="my/vllm:1"))).image == "my/vllm:1"


def test_default_batch_limit_is_always_said() -> None:
    subject = spec(verifier={"max_num_seqs": None})
    assert valued(container(subject).args, "--max-num-seqs") == "256"
    assert engine_for(subject).knobs(subject).max_batch == 256


def drafting(speculator: Speculator, **fields: Any) -> dict[str, Any]:
    """Speculative config with the options of `speculator`, without what the table decides."""
    subject = replace(spec(speculator.method, **fields), speculator=speculator)
    decided = ("num_speculative_tokens", "num_speculative_tokens_per_batch_size")
    return {key: value for key, value in config(container(subject)).items() if key not in decided}


@pytest.mark.parametrize(
    ("speculator", "expected"),
    [
        (
            Speculator(Method.EAGLE3, SMALL_QWEN, quantization="fp8"),
            {"method": "eagle3", "model": "Qwen/Qwen3-0.6B", "quantization": "fp8"},
        ),
        (
            Speculator(Method.EAGLE3, SMALL_QWEN, parallel_drafting=True),
            {"method": "eagle3", "model": "Qwen/Qwen3-0.6B", "parallel_drafting": True},
        ),
        (
            Speculator(Method.DRAFT_MODEL, SMALL_QWEN, heterogeneous_vocabulary=True),
            {"method": "draft_model", "model": "Qwen/Qwen3-0.6B", "use_heterogeneous_vocab": True},
        ),
        (
            Speculator(Method.NGRAM, prompt_lookup_min=2, prompt_lookup_max=5),
            {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5},
        ),
    ],
)
def test_options_of_the_drafter(speculator: Speculator, expected: dict[str, Any]) -> None:
    assert drafting(speculator) == expected


def test_parallel_drafting_keeps_one_k_on_the_runner_that_has_it() -> None:
    subject = replace(spec(), speculator=Speculator(Method.EAGLE3, SMALL_QWEN, parallel_drafting=True))
    knobs = engine_for(subject).knobs(subject)
    assert (knobs.actuator, knobs.drafts_blocks) == ("Restart", True)
    assert "num_speculative_tokens_per_batch_size" not in config(container(subject))


def test_a_speculator_is_served_by_its_own_name() -> None:
    """It says method and model itself; its revision is not the verifier's, which the engine would take it for."""
    own = ModelSource(Scheme.HF, "RedHatAI/speculator", "r1")
    subject = spec(source=own, verifier={"source": own})
    made = container(subject)
    assert made.args[0] == "RedHatAI/speculator"
    assert "--revision" not in made.args
    assert (config(made)["model"], config(made)["revision"]) == ("RedHatAI/speculator", "r1")
    claim = ModelSource(Scheme.PVC, "w/s")
    assert len(container(spec(source=claim, verifier={"source": claim})).pvc_mounts) == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"mode": Mode.DISABLED}, "spec.verifier.model"),
        ({"off_policy": OffPolicy.REMOVE}, "spec.speculation.offPolicy"),
    ],
)
def test_a_speculator_by_its_own_name_always_drafts(fields: dict[str, Any], field: str) -> None:
    own = ModelSource(Scheme.HF, "RedHatAI/speculator")
    subject = spec(source=own, verifier={"source": own}, **fields)
    (refusal,) = engine_for(subject).refusals(subject)
    assert refusal.field == field
    assert "verifier.model" in refusal.message


def test_mtp_layers_are_of_the_verifiers_checkpoint() -> None:
    """Named twice or once: the engine takes them, and the quantization, from the verifier, but not its revision."""
    whole = ModelSource(Scheme.HF, "deepseek-ai/DeepSeek-V3", "r1")
    for source in (None, whole):
        subject = spec(Method.MTP, source=source, verifier={"source": whole, "tensor_parallel_size": 8})
        made = container(subject)
        assert valued(made.args, "--revision") == "r1"
        drafter = {key: value for key, value in config(made).items() if not key.startswith("num_")}
        assert drafter == {"method": "mtp", "revision": "r1"}
    image = ModelSource(Scheme.OCI, "registry.example/deepseek:1")
    assert len(container(spec(Method.MTP, source=image, verifier={"source": image})).image_mounts) == 1


def test_a_dspark_named_twice_names_its_verifier_and_named_once_is_part_of_it() -> None:
    whole = ModelSource(Scheme.HF, "someone/whole", "r1")
    part = spec(Method.DSPARK, source=None, verifier={"source": whole})
    assert engine_for(part).refusals(part) == ()
    assert "model" not in config(container(part))
    assert (valued(container(part).args, "--revision"), config(container(part))["revision"]) == ("r1", "r1")
    twice = ModelSource(Scheme.HF, "someone/whole")
    own = spec(Method.DSPARK, source=twice, verifier={"source": twice})
    assert engine_for(own).refusals(own) == ()
    assert config(container(own))["model"] == "someone/whole"


@pytest.mark.parametrize(
    ("revision", "fields", "field"),
    [
        ("r1", {}, "spec.speculator.model"),
        ("", {"mode": Mode.DISABLED}, "spec.verifier.model"),
        ("", {"off_policy": OffPolicy.REMOVE}, "spec.speculation.offPolicy"),
    ],
)
def test_a_dspark_named_twice_is_refused_where_both_readings_part(
    revision: str, fields: dict[str, Any], field: str
) -> None:
    """Layers of the verifier's own would be loaded at another revision, or could be left out."""
    whole = ModelSource(Scheme.HF, "someone/whole", revision)
    subject = spec(Method.DSPARK, source=whole, verifier={"source": whole}, **fields)
    (refusal,) = engine_for(subject).refusals(subject)
    assert refusal.field == field
    assert "remove speculator.model if it drafts with layers of its own" in refusal.message


def test_experts_and_adapters() -> None:
    subject = spec(verifier={"expert_parallel": True, "lora": LoraLimits(4, 32), "tensor_parallel_size": 2})
    args = container(subject).args
    assert "--enable-expert-parallel" in args
    assert "--enable-lora" in args
    assert (valued(args, "--max-loras"), valued(args, "--max-lora-rank")) == ("4", "32")
    assert "--enable-lora" not in container(spec()).args
