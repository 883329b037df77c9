"""Where vLLM finds the speculator's weights: in their own checkpoint, in the verifier's, or by the speculator's name.

By its own name a speculators-format checkpoint is served like a model: it names its verifier, and the engine loads both
(vLLM 0.32 transformers_utils/config.py, `maybe_override_with_speculators`). Used by `arguments`, `environment`,
`adapter`, `options` and `checks`.
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Method, Mode, OffPolicy
from speculative_operator.engines.base import Refusal

OWN_NAME = (Method.EAGLE3, Method.DFLASH, Method.DSPARK)
"""Methods that speculators-format checkpoints have (vLLM 0.32 transformers_utils/configs/speculators/algos.py)."""
IN_VERIFIER = (Method.MTP, Method.DSPARK)
"""Methods that need no model beside the verifier's (vLLM 0.32 config/speculative.py, `__post_init__`)."""


def serves_itself(spec: DeploymentSpec) -> bool:
    """True for a speculator that is served by its own name: verifier and speculator name one checkpoint.

    A `dspark` that is part of its verifier is told by the absence of speculator.model.
    """
    return _names_one_checkpoint(spec) and spec.speculator is not None and spec.speculator.method in OWN_NAME


def in_verifier(spec: DeploymentSpec) -> bool:
    """True when the drafting layers are part of the verifier's checkpoint; `mtp` may name that one once more."""
    speculator = spec.speculator
    if speculator is None or speculator.method not in IN_VERIFIER:
        return False
    return speculator.source is None or (_names_one_checkpoint(spec) and not serves_itself(spec))


def apart(spec: DeploymentSpec) -> bool:
    """True when the speculator's weights are a second source, with a place of its own."""
    return not serves_itself(spec) and not in_verifier(spec)


def refusals(spec: DeploymentSpec) -> Iterator[Refusal]:
    """A speculator served by its own name drafts whenever it is served, and its revision is not its verifier's."""
    if not serves_itself(spec) or spec.speculator is None:
        return
    source, speculation = spec.verifier.source, spec.speculation
    remedy = "set verifier.model to the model that it was made for"
    if spec.speculator.method in IN_VERIFIER:
        remedy += ", or remove speculator.model if it drafts with layers of its own"
        if source.revision:
            message = (
                f"verifier.revision {source.revision}: {source.uri} is also the speculator, whose revision it would "
                f"be, not that of the verifier it names; {remedy}"
            )
            yield Refusal("spec.speculator.model", Reason.SPEC_INVALID, message)
    if speculation.mode is Mode.DISABLED:
        message = (
            f"verifier.model {source.uri} is its own speculator and cannot be served with speculation.mode Disabled; "
            f"{remedy}"
        )
        yield Refusal("spec.verifier.model", Reason.SPEC_INVALID, message)
    elif speculation.off_policy is OffPolicy.HARD and speculation.mode is not Mode.STATIC:
        message = (
            f"speculation.offPolicy Hard needs a verifier that is served without drafts, which {source.uri} is not; "
            f"{remedy}, or set speculation.offPolicy: Soft"
        )
        yield Refusal("spec.speculation.offPolicy", Reason.SPEC_INVALID, message)


def _names_one_checkpoint(spec: DeploymentSpec) -> bool:
    source = spec.speculator.source if spec.speculator is not None else None
    return source is not None and source.uri == spec.verifier.source.uri
