"""How many tokens a step may hold (`--max-num-batched-tokens`), so that the drafts of a full batch fit in.

Asked by `arguments`, `graphs` and `adapter`. Rules of vLLM 0.32 (config/speculative.py, config/vllm.py and
engine/arg_utils.py: `max_num_new_slots_for_drafting`, `_set_max_num_scheduled_tokens`, `get_batch_defaults`).
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Method, Speculator
from speculative_operator.domain.vendor import Vendor
from speculative_operator.engines.base import Refusal
from speculative_operator.engines.matrix.version import Version
from speculative_operator.engines.vllm.plan import Plan
from speculative_operator.physics.catalog import find_accelerator

ADVISED = 8192
"""vLLM warns below it when it speculates; also its own default for the API server on an H100."""
_LEAST = 2048
"""vLLM's least default on a GPU."""
_LARGEST = 16384
_TPU = 256
_STEP = 1024
_GIB = 2**30
_SLOTS_ONCE_SINCE: Version = (0, 32, 0)
"""Before, the slots of all requests together had to be less than the tokens of a step."""
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_FIELD = "spec.verifier.maxNumBatchedTokens"


def drafting_slots(speculator: Speculator, k: int) -> int:
    """Slots that each request needs in a drafting pass beside the tokens that are verified."""
    method = speculator.method
    if method is Method.DFLASH:
        return k
    if method is Method.DSPARK or speculator.parallel_drafting:
        return k if method is Method.DRAFT_MODEL else k - 1
    return 1 if method is Method.DRAFT_MODEL else 0


def token_need(spec: DeploymentSpec, plan: Plan) -> int:
    """Tokens of a step in which every request verifies the largest K and drafts the next ones; 0 without drafts."""
    if not plan.speculates or spec.speculator is None:
        return 0
    return plan.max_batch * (plan.max_k + 1 + drafting_slots(spec.speculator, plan.max_k))


def budget_flag(spec: DeploymentSpec, plan: Plan) -> int | None:
    """Value of the flag: the user's, else what drafts need where the engine's default is less or not known.

    None leaves it to the engine, whose default has room. A larger step lengthens the prompts' chunks and so the
    pauses between tokens: on small accelerators it is raised no further than drafts need.
    """
    given = spec.verifier.max_num_batched_tokens
    if given is not None:
        return given
    need, default = token_need(spec, plan), _default(spec)
    if need <= (default or _LEAST):
        return None
    rounded = -(-need // _STEP) * _STEP
    return rounded if default is not None else max(ADVISED, rounded)


def budget(spec: DeploymentSpec, plan: Plan) -> int:
    """The least number of tokens that a step may hold, by the user, the operator or the engine's default."""
    return budget_flag(spec, plan) or _default(spec) or _LEAST


def refusals(spec: DeploymentSpec, plan: Plan) -> Iterator[Refusal]:
    """Refuses budgets with which the engine would not start, and ranks of adapters that it does not know."""
    lora, given = spec.verifier.lora, spec.verifier.max_num_batched_tokens
    if lora is not None and lora.max_rank not in _RANKS:
        ranks = ", ".join(map(str, _RANKS))
        message = f"verifier.lora.maxRank {lora.max_rank}: vLLM accepts {ranks}; use the next larger one"
        yield Refusal("spec.verifier.lora.maxRank", Reason.UNSUPPORTED_BY_ENGINE, message)
    if given is None:
        return
    floor, why = max(_floors(spec, plan))
    if given < floor:
        yield Refusal(_FIELD, Reason.SPEC_INVALID, f"verifier.maxNumBatchedTokens {given}: {why}; use {floor} or more")


def _floors(spec: DeploymentSpec, plan: Plan) -> Iterator[tuple[int, str]]:
    seqs = plan.max_batch
    yield seqs, f"each of {seqs} requests (verifier.maxNumSeqs) needs a token"
    if not plan.speculates or spec.speculator is None:
        return
    slots = drafting_slots(spec.speculator, plan.max_k)
    together = slots if plan.version >= _SLOTS_ONCE_SINCE else slots * seqs
    yield together + 1, f"drafts of method {spec.speculator.method} take {together} slots of a step"
    if spec.verifier.lora is not None:
        whole = seqs * (plan.max_k + 1)
        yield whole, f"with adapters {seqs} requests times {plan.max_k} drafts and a token must fit in a step"


def _default(spec: DeploymentSpec) -> int | None:
    """The engine's own default on the spec's accelerators; None where they are not known."""
    vendor, product = spec.accelerator.vendor, spec.accelerator.product
    if vendor is Vendor.TPU:
        return _TPU
    if vendor is Vendor.CPU:
        return _LEAST * spec.verifier.tensor_parallel_size * spec.verifier.pipeline_parallel_size
    found = find_accelerator(product) if product else None
    if found is None:
        return None if vendor in (Vendor.NVIDIA, Vendor.AMD, Vendor.OTHER) else _LEAST
    if found.memory_bytes >= 160 * _GIB:
        return _LARGEST
    return ADVISED if found.memory_bytes >= 70 * _GIB and "a100" not in product.lower() else _LEAST
