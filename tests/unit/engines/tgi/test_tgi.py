"""TGI: one constant K, n-gram or Medusa, told with a warning of its state; everything else refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engines.building import valued
from tests.unit.engines.kinds import of, refused

from speculative_operator.domain.observation import Gap
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import EngineType, LoraLimits, Method, Mode, ModelSource, OffPolicy, Scheme
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.tgi import ENGINE

FOUR = KTable.constant(4, 128)


def tgi(method: Method | None = Method.NGRAM, **others: Any) -> Any:
    return of(EngineType.TGI, method, **{"source": None, **others})


@pytest.mark.parametrize("method", [Method.NGRAM, Method.MEDUSA])
def test_k_is_one_flag(method: Method) -> None:
    subject = tgi(method, verifier={"max_num_seqs": None})
    assert ENGINE.refusals(subject) == ()
    container = ENGINE.container(subject, FOUR)
    assert container.command == ()
    assert container.image == "ghcr.io/huggingface/text-generation-inference:3.3.6"
    assert valued(container.args, "--speculate") == "4"
    assert valued(container.args, "--max-concurrent-requests") == valued(container.args, "--max-batch-size") == "128"
    assert valued(container.args, "--hostname") == "0.0.0.0"
    assert container.shutdown_seconds == int(valued(container.args, "--graceful-termination-timeout"))
    knobs = ENGINE.knobs(subject)
    assert (knobs.actuator, knobs.ks) == (Actuator.RESTART, tuple(range(1, 9)))
    assert (knobs.draft_free, knobs.drafts_blocks) == (method is Method.NGRAM, method is Method.MEDUSA)


def test_without_a_drafter() -> None:
    hard = tgi(off_policy=OffPolicy.REMOVE)
    assert 0 in ENGINE.knobs(hard).ks
    for subject, table in ((hard, KTable.constant(0, 128)), (tgi(None), FOUR), (tgi(mode=Mode.DISABLED), FOUR)):
        assert "--speculate" not in ENGINE.container(subject, table).args


def test_the_state_of_the_engine_is_said_for_every_spec() -> None:
    for subject in (tgi(), tgi(None), tgi(mode=Mode.DISABLED), tgi(mode=Mode.STATIC, num_speculative_tokens=3)):
        *_, notice = ENGINE.notices(subject)
        assert notice.reason is Reason.ENGINE_UNMAINTAINED
        assert "vLLM or SGLang" in notice.message


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.RECOMMEND])
def test_that_nothing_is_tuned_is_said_where_it_is_asked_for(mode: Mode) -> None:
    notice, _ = ENGINE.notices(tgi(mode=mode))
    assert notice.reason is Reason.UNSUPPORTED_BY_ENGINE
    assert "nothing is tuned" in notice.message
    for subject in (tgi(None), tgi(mode=Mode.DISABLED), tgi(mode=Mode.STATIC, num_speculative_tokens=3)):
        assert len(ENGINE.notices(subject)) == 1


def test_nothing_is_measured() -> None:
    assert ENGINE.metric_names == ()
    found = ENGINE.read([], ["a", "b"], {}, 0.0, 60.0)
    assert set(found) == {"a", "b"}
    assert all(isinstance(gap, Gap) and gap.reason is Reason.UNSUPPORTED_BY_ENGINE for gap in found.values())


def test_the_verifiers_fields_are_flags() -> None:
    fields = {
        "tensor_parallel_size": 4, "max_model_len": 8192, "max_num_batched_tokens": 4096, "dtype": "bfloat16",
        "quantization": "awq", "kv_cache_dtype": "fp8_e4m3fn", "gpu_memory_utilization_percent": 90,
    }  # fmt: skip
    args = ENGINE.container(tgi(None, verifier=fields), FOUR).args
    wanted = {
        "--num-shard": "4", "--max-total-tokens": "8192", "--max-batch-prefill-tokens": "4096", "--dtype": "bfloat16",
        "--quantize": "awq", "--kv-cache-dtype": "fp8_e4m3fn", "--cuda-memory-fraction": "0.9",
    }  # fmt: skip
    assert {flag: valued(args, flag) for flag in wanted} == wanted


HEADS = ModelSource(Scheme.HF, "a/heads")


# Further ones: tests/contract/refused_engines.py.
REFUSED: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    ({"method": Method.MEDUSA, "source": HEADS}, ("a/heads", "remove speculator.model")),
    ({"version": "2.4.0"}, ("2.4.0", "use 3.0.0 or newer")),
    ({"version": "latest"}, ("latest", "such as 3.3.6")),
    ({"verifier": {"expert_parallel": True}}, ("expertParallel", "remove it")),
    ({"verifier": {"lora": LoraLimits()}}, ("--lora-adapters",)),
    ({"drafting": {"quantization": "fp8"}}, ("fp8", "remove it")),
    ({"drafting": {"prompt_lookup_max": 3}}, ("promptLookup", "remove it")),
    ({"args": ("--speculate=9",)}, ("--speculate", "spec.speculation")),
    ({"args": ("-p", "80")}, ("--port", "always set")),
)


@pytest.mark.parametrize(("case", "parts"), REFUSED)
def test_refused(case: dict[str, Any], parts: tuple[str, ...]) -> None:
    refused(tgi(case.get("method", Method.NGRAM), **{k: v for k, v in case.items() if k != "method"}), *parts)


def test_only_tensors_are_split() -> None:
    refused(tgi(verifier={"data_parallel_size": 2}), "raise spec.replicas")
