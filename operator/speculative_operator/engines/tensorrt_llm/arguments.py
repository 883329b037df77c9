"""The arguments of `trtllm-serve`, releases 1.0 to 1.4. Called by `adapter`; nothing passes a shell.

The server answers under whatever model name a request gives, so the served name is no argument of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain import names
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.shared.plan import Plan
from speculative_operator.engines.shared.sources import locate
from speculative_operator.engines.tensorrt_llm.capability import CONFIG_FLAG_SINCE
from speculative_operator.engines.tensorrt_llm.configuration import FILE

COMMAND = ("trtllm-serve",)
_ALL_INTERFACES = "0.0.0.0"  # noqa: S104  (the pod's own network namespace; a NetworkPolicy says who may reach it)


def arguments(spec: DeploymentSpec, plan: Plan) -> tuple[str, ...]:
    """The operator's, then the user's. K is not among them: it stands in the file that --config names."""
    return (*_ours(spec, plan), *spec.engine.args)


def _ours(spec: DeploymentSpec, plan: Plan) -> Iterator[str]:
    verifier = spec.verifier
    yield locate(verifier.source, "verifier").model
    yield from ("--host", _ALL_INTERFACES, "--port", str(names.SERVING_PORT), "--backend", "pytorch")
    yield from ("--tp_size", str(verifier.tensor_parallel_size))
    if verifier.pipeline_parallel_size > 1:
        yield from ("--pp_size", str(verifier.pipeline_parallel_size))
    if verifier.expert_parallel:
        yield from ("--ep_size", str(verifier.tensor_parallel_size))
    yield from ("--max_batch_size", str(plan.max_batch))
    if verifier.max_model_len is not None:
        yield from ("--max_seq_len", str(verifier.max_model_len))
    if verifier.max_num_batched_tokens is not None:
        yield from ("--max_num_tokens", str(verifier.max_num_batched_tokens))
    flag = "--config" if plan.version >= CONFIG_FLAG_SINCE else "--extra_llm_api_options"
    yield from (flag, f"{names.CONFIG_MOUNT}/{FILE}")
