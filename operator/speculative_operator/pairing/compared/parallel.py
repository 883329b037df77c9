"""Do the attention heads of both divide by their tensor parallel sizes?

vLLM 0.32.0 config/model.py, verify_with_parallel_config, for verifier and speculator each. Small models have odd
numbers of heads: Qwen2.5-0.5B has 14.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.artifact import ModelFacts
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.pairing import reading
from speculative_operator.pairing.codes import Code
from speculative_operator.pairing.findings import Finding
from speculative_operator.pairing.pair import Pair, error
from speculative_operator.pairing.rules import EngineRules


def findings(pair: Pair) -> Iterator[Finding]:
    if pair.inside or not pair.rules.divisible_heads:
        return
    asked = pair.requested.tensor_parallel_size
    size = asked or pair.spec.verifier.tensor_parallel_size
    count = _heads(pair.speculator)
    if count is None or count % size == 0:
        return
    field = "speculator config.json num_attention_heads"
    message = f"{count} attention heads are not divisible by tensor parallel size {size}: the engine refuses to start"
    remedy = f"set spec.verifier.tensorParallelSize to a divisor of {count}, or use another speculator"
    yield error(Code.HEADS_NOT_DIVISIBLE, field, (f"tensor parallel {size}", count), message, remedy)


def of_verifier(verifier: ModelFacts, spec: DeploymentSpec, rules: EngineRules) -> Iterator[Finding]:
    """Findings on the verifier's own attention heads; needs no speculator."""
    size, count = spec.verifier.tensor_parallel_size, _heads(verifier)
    if not rules.divisible_heads or count is None or count % size == 0:
        return
    message = f"{count} attention heads are not divisible by tensor parallel size {size}: the engine refuses to start"
    remedy = f"set it to a divisor of {count}"
    yield error(Code.HEADS_NOT_DIVISIBLE, "spec.verifier.tensorParallelSize", (count, None), message, remedy)


def _heads(facts: ModelFacts) -> int | None:
    return reading.whole(reading.decoder(facts.config), "num_attention_heads")
