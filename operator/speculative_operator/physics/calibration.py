"""Step costs of pairs, fitted to published measurements: more exact than the roofline.

Called by the emulator and, as prior, by the tuner. One cost set per pair serves every data set; only acceptance length
and lengths of prompts and outputs differ between them. docs/physics.md lists the residuals.

Qwen3-8B + Qwen3-0.6B (draft model, K = 3) on one H100-SXM: fitted to the 16 speed-ups of arXiv 2601.11580 Fig. 1
(vector figure; output tokens per second, end to end; vLLM 0.10-0.11 with full graphs, hence no graph tax in the fit).
Costs were tied to the roofline and to the Llama-3.1-8B fit on the same accelerator (log sd .06 a token, .1 weights and
KV, .25 speculator KV, .5 speculator pass and overhead, .7 speculator token), acceptance lengths to 2.5-3.2 (log sd
.15). Result: median error 4.6 %, largest 7.7 %, both published losses are losses. The residuals bend: the model is
3-8 % low at batch 16 and 64 and 2-7 % high at 128, where a step of 512 verified tokens plus prefill leaves the
captured graphs.
"""

from __future__ import annotations

from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.step_time import GRAPH_TAX_PER_LAYER, StepCosts

_QWEN3_8B = StepCosts(
    fixed=7.21e-3,
    per_token=2.035e-5,
    per_kv_token=4.333e-8,
    draft_fixed=1.36e-3,
    draft_per_token=1.042e-6,
    draft_per_kv_token=2.838e-8,
    speculative_overhead=1.247e-3,
    graph_tax=36 * GRAPH_TAX_PER_LAYER,
)
_CALIBRATED = {("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "H100-SXM"): _QWEN3_8B}


def calibrated_costs(verifier: str, speculator: str, accelerator: str) -> StepCosts | None:
    """Costs of the pair on one accelerator, names as `catalog` takes them; None for a pair without published data."""
    first, second, device = find_model(verifier), find_model(speculator), find_accelerator(accelerator)
    if first is None or second is None or device is None:
        return None
    return _CALIBRATED.get((first.name, second.name, device.name))


def costs_with_verifier(verifier: str, accelerator: str) -> StepCosts | None:
    """Costs of a calibrated pair with this verifier, or None; the verifier's part holds with any or no speculator."""
    first, device = find_model(verifier), find_accelerator(accelerator)
    if first is None or device is None:
        return None
    for (name, _, where), costs in _CALIBRATED.items():
        if (name, where) == (first.name, device.name):
            return costs
    return None
