"""Refusals that several engines share, found before a pod exists. Called by each engine's own checks.

`refusals_of` makes all of them for an engine that an `Offer` describes; vLLM, which has model runners besides,
calls single checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DEFAULT_VERSIONS, DeploymentSpec, Mode, Speculator, Verifier
from speculative_operator.domain.table import Actuator
from speculative_operator.engines import images
from speculative_operator.engines.base import Refusal
from speculative_operator.engines.matrix import refusing
from speculative_operator.engines.matrix.rows import Version, parse_version, show_version
from speculative_operator.engines.shared import arguments
from speculative_operator.engines.shared.flags import Flags
from speculative_operator.engines.shared.plan import Offer, plan

UNSUPPORTED, INVALID = Reason.UNSUPPORTED_BY_ENGINE, Reason.SPEC_INVALID


def unreadable_version(spec: DeploymentSpec) -> Refusal:
    """Refuses an engine.version that is no release number; nothing else can be judged then."""
    message = (
        f"engine.version {spec.engine.version!r} is not a release number; write one such as "
        f"{DEFAULT_VERSIONS[spec.engine.type]} (engine.image may name any image built from it)"
    )
    return Refusal("spec.engine.version", UNSUPPORTED, message)


def refusals_of(
    spec: DeploymentSpec,
    offer: Offer,
    flags: Flags,
    of_verifier: Callable[[Verifier], Iterable[Refusal]],
    of_speculator: Callable[[DeploymentSpec, Speculator], Iterable[Refusal]],
) -> tuple[Refusal, ...]:
    """The common refusals of `spec`, then the engine's own; empty when the engine can serve it."""
    version = parse_version(spec.engine.version)
    if version is None:
        return (unreadable_version(spec),)
    found = [*_common(spec, version, offer, flags), *of_verifier(spec.verifier)]
    if spec.speculator is not None and spec.speculates:
        found += of_speculator(spec, spec.speculator)
    return tuple(found)


def refuse_field(field: str, why: str, value: object = "") -> Refusal:
    """Refuses a field of the spec that the engine cannot follow."""
    return Refusal(f"spec.{field}", UNSUPPORTED, f"{field}{f' {value}' if value else ''}: {why}")


def _common(spec: DeploymentSpec, version: Version, offer: Offer, flags: Flags) -> Iterator[Refusal]:
    """All refusals but the engine's own, in the order of the spec's fields. `version` is the spec's, as read."""
    yield from arguments.source_refusals(spec)
    yield from _release(spec, offer, version)
    if spec.speculator is not None and spec.speculates:
        yield from _speculator(spec, spec.speculator, offer, version)
        yield from static(spec, _one_k(spec, offer))
        yield from _table(spec, offer)
    yield from flags.refusals(spec)


def too_old(version: Version, oldest: Version, why: str) -> Refusal:
    """Refuses a release before `oldest`, the first that the adapter serves; `why` completes the message."""
    message = f"engine.version {show_version(version)} {why}; use {show_version(oldest)} or newer"
    return Refusal("spec.engine.version", UNSUPPORTED, message)


def _release(spec: DeploymentSpec, offer: Offer, version: Version) -> Iterator[Refusal]:
    if version < offer.oldest:
        yield too_old(version, offer.oldest, offer.why_oldest)
    refused = tuple(refusing.platform(spec, version))
    yield from refused
    if not refused and (missing := images.refusal(spec)) is not None:
        yield missing


def _speculator(spec: DeploymentSpec, speculator: Speculator, offer: Offer, version: Version) -> Iterator[Refusal]:
    if version < offer.oldest:
        return
    refused = refusing.why(refusing.question_of(spec, version))
    if refused is not None:
        yield refused
        return
    yield from _own_name(speculator, spec.verifier.source.uri)
    size, whole = speculator.tensor_parallel_size, spec.verifier.tensor_parallel_size
    if size is not None and size != whole:
        why = f"{offer.engine} runs the speculator on the verifier's {whole} accelerators; remove it"
        yield refuse_field("speculator.tensorParallelSize", why, size)


def _own_name(speculator: Speculator, verifier: str) -> Iterator[Refusal]:
    source = speculator.source
    if source is not None and source.uri == verifier and not speculator.method.may_sit_in_verifier:
        message = (
            f"speculator.model is the verifier's own {verifier}: only vLLM serves one checkpoint as both; set "
            "it to the speculator's weights"
        )
        yield Refusal("spec.speculator.model", UNSUPPORTED, message)


def static(spec: DeploymentSpec, one_k: str) -> Iterator[Refusal]:
    """Refuses a schedule of mode Static where the engine keeps one K; `one_k` says why, empty where K may change."""
    speculation = spec.speculation
    if speculation.mode is Mode.STATIC and speculation.schedule is not None and one_k:
        message = f"speculation.schedule cannot be served: {one_k}; set speculation.numSpeculativeTokens instead"
        yield Refusal("spec.speculation.schedule", UNSUPPORTED, message)


def _one_k(spec: DeploymentSpec, offer: Offer) -> str:
    planned = plan(spec, offer)
    if planned.actuator is not Actuator.RESTART:
        return ""
    return (
        offer.fixed_k_reason(spec)
        or f"{offer.engine} {show_version(planned.version)} keeps one K with this method and layout"
    )


def _table(spec: DeploymentSpec, offer: Offer) -> Iterator[Refusal]:
    """Refuses a schedule of the user's that the engine would not follow as it is written."""
    speculation, planned = spec.speculation, plan(spec, offer)
    if speculation.mode is not Mode.STATIC or speculation.schedule is None or planned.actuator is Actuator.RESTART:
        return
    ks = speculation.schedule.resize(planned.max_batch).dense()
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
