"""Every command line that is rendered is taken by the emulator's parser, which refuses what vLLM refuses."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engines.building import spec
from tests.unit.failing import failing

from speculative_lab.emulator.arguments import parse
from speculative_lab.emulator.schedule import lookup
from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import Method, OffPolicy
from speculative_operator.domain.table import KTable
from speculative_operator.engines.registry import engine_for

VERIFIER = {
    "tensor_parallel_size": 2, "max_model_len": 4096, "dtype": "bfloat16", "quantization": "fp8",
    "kv_cache_dtype": "fp8", "gpu_memory_utilization_percent": 88, "max_num_seqs": 64,
}  # fmt: skip
METHODS = list(Method)


def test_every_method_on_every_kind_of_release() -> None:
    assert failing(taken, product(METHODS, ("0.23.0", "0.31.0", "0.32.0", "0.33.0", "0.34.0"))) == []


def taken(case: tuple[Method, str]) -> None:
    method, release = case
    subject = spec(method, version=release, verifier=VERIFIER)
    given_arguments = engine_for(subject).container(resolve(subject), KTable.constant(2, 64)).args
    parsed = parse(["serve", *given_arguments])
    assert (parsed.model, parsed.max_num_seqs, parsed.gpu_memory_utilization) == ("Qwen/Qwen3-8B", 64, 0.88)
    assert parsed.speculative_config["method"] == method
    assert parsed.scheduler_cls == ("speculative_scheduler.scheduler" if _live(release, method) else None)


def _live(release: str, method: Method) -> bool:
    constant = (Method.NGRAM_GPU, Method.SUFFIX, Method.MEDUSA, *((Method.DSPARK,) if release == "0.31.0" else ()))
    return release != "0.23.0" and method not in constant


@given(
    st.sampled_from(METHODS), st.integers(1, 16), st.integers(1, 300), st.sampled_from(list(OffPolicy)),
)  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_the_boot_schedule_expands_to_every_k(method: Method, top: int, seqs: int, policy: OffPolicy) -> None:
    subject = spec(method, verifier={"max_num_seqs": seqs}, max_speculative_tokens=top, off_policy=policy)
    made = engine_for(subject).container(resolve(subject), KTable.constant(1, seqs))
    config = parse(["serve", *made.args]).speculative_config
    if made.payload:
        dense = lookup(config["num_speculative_tokens_per_batch_size"], seqs, config["num_speculative_tokens"])
        assert set(dense[1:]) == set(engine_for(subject).knobs(subject).ks)
