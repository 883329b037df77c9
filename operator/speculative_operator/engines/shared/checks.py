"""What the three engines refuse for the same reasons, found before a pod exists. Called by each engine's own checks."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Mode, Speculator
from speculative_operator.engines import images
from speculative_operator.engines.base import Refusal
from speculative_operator.engines.matrix import refusing
from speculative_operator.engines.matrix.version import Version, parse, show
from speculative_operator.engines.shared import sources
from speculative_operator.engines.shared.flags import Flags
from speculative_operator.engines.shared.plan import Offer, plan

UNSUPPORTED, INVALID = Reason.UNSUPPORTED_BY_ENGINE, Reason.SPEC_INVALID


def unreadable_version(spec: DeploymentSpec, offer: Offer) -> Refusal | None:
    """A version that is no release number: nothing else can be judged then."""
    if parse(spec.engine.version) is not None:
        return None
    message = (
        f"engine.version {spec.engine.version!r} is no release number; write one such as {show(offer.oldest)} "
        "(engine.image may name any image built from it)"
    )
    return Refusal("spec.engine.version", UNSUPPORTED, message)


def common(spec: DeploymentSpec, offer: Offer, flags: Flags) -> Iterator[Refusal]:
    """Everything but the engine's own rules, in the order of the spec's fields. The version can be read."""
    version = parse(spec.engine.version) or offer.oldest
    yield from sources.refusals(spec)
    yield from _parallelism(spec)
    yield from _release(spec, offer, version)
    if spec.speculator is not None and spec.speculates:
        yield from _speculator(spec, spec.speculator, offer, version)
        yield from _static(spec, offer)
    yield from flags.refusals(spec)


def _parallelism(spec: DeploymentSpec) -> Iterator[Refusal]:
    verifier, available = spec.verifier, spec.accelerator.per_replica
    wanted = verifier.tensor_parallel_size * verifier.pipeline_parallel_size * verifier.data_parallel_size
    if 0 < available < wanted:
        message = (
            f"accelerator.perReplica {available} is less than the {wanted} that tensor x pipeline x data parallelism "
            f"of the verifier needs; set accelerator.perReplica: {wanted}"
        )
        yield Refusal("spec.accelerator.perReplica", INVALID, message)


def _release(spec: DeploymentSpec, offer: Offer, version: Version) -> Iterator[Refusal]:
    if version < offer.oldest:
        message = f"engine.version {show(version)} {offer.why_oldest}; use {show(offer.oldest)} or newer"
        yield Refusal("spec.engine.version", UNSUPPORTED, message)
    refused = tuple(refusing.platform(spec, version))
    yield from refused
    if not refused and (missing := images.refusal(spec)) is not None:
        yield missing


def _speculator(spec: DeploymentSpec, speculator: Speculator, offer: Offer, version: Version) -> Iterator[Refusal]:
    if version < offer.oldest:
        return
    refused = tuple(refusing.method(spec, version, offer.cells))
    yield from refused or _weights(speculator, spec.verifier.source.uri, offer)
    size, whole = speculator.tensor_parallel_size, spec.verifier.tensor_parallel_size
    if size is not None and size != whole and not refused:
        message = (
            f"speculator.tensorParallelSize {size}: {offer.engine} runs the drafter on the verifier's {whole} "
            "accelerators; remove it"
        )
        yield Refusal("spec.speculator.tensorParallelSize", UNSUPPORTED, message)


def _weights(speculator: Speculator, verifier: str, offer: Offer) -> Iterator[Refusal]:
    method, source = speculator.method, speculator.source
    if method.draft_free and source is not None:
        message = (
            f"speculator.method {method} looks tokens up in the text and has no weights; "
            f"remove spec.speculator.model ({source.uri})"
        )
        yield Refusal("spec.speculator.model", INVALID, message)
    if source is not None and source.uri == verifier and not method.may_sit_in_verifier:
        message = (
            f"speculator.model is the verifier's own {verifier}: only vLLM serves a checkpoint that names both; name "
            "the drafter's weights"
        )
        yield Refusal("spec.speculator.model", UNSUPPORTED, message)
    if method in offer.needs_source and source is None:
        message = f"speculator.method {method} drafts with weights of its own; set spec.speculator.model"
        yield Refusal("spec.speculator.model", INVALID, message)


def _static(spec: DeploymentSpec, offer: Offer) -> Iterator[Refusal]:
    speculation = spec.speculation
    if speculation.mode is not Mode.STATIC:
        return
    if speculation.schedule is None:
        if not speculation.num_speculative_tokens:
            message = "speculation.mode Static says no K; set speculation.numSpeculativeTokens (1 or more) or schedule"
            yield Refusal("spec.speculation.numSpeculativeTokens", INVALID, message)
        return
    planned = plan(spec, offer)
    if planned.actuator is Actuator.RESTART:
        why = offer.held_back(spec) or f"{offer.engine} {show(planned.version)} keeps one K with this method and layout"
        message = f"speculation.schedule cannot be served: {why}; set speculation.numSpeculativeTokens instead"
        yield Refusal("spec.speculation.schedule", UNSUPPORTED, message)
        return
    ks = speculation.schedule.resized(planned.max_batch).dense()
    if not offer.zero_in_table and 0 in ks:
        message = (
            f"speculation.schedule holds K = 0, after which {offer.engine} drafts from memory that nothing kept up to "
            "date; use 1 there"
        )
        yield Refusal("spec.speculation.schedule", UNSUPPORTED, message)
    if offer.falling and ks != sorted(ks, reverse=True):
        message = (
            f"speculation.schedule rises: {offer.engine} takes only a K that stays or falls with more requests; "
            "put the largest K first"
        )
        yield Refusal("spec.speculation.schedule", UNSUPPORTED, message)
