"""Everything that SGLang would reject, or silently do otherwise, found before a pod exists. Called by `adapter`."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Speculator
from speculative_operator.engines.base import Notice, Refusal
from speculative_operator.engines.matrix.version import parse
from speculative_operator.engines.sglang.capability import OFFER, WITH_LORA
from speculative_operator.engines.sglang.user_arguments import FLAGS, LOSSY_FLAGS
from speculative_operator.engines.shared.checks import UNSUPPORTED, common, unreadable_version


def refusals(spec: DeploymentSpec) -> tuple[Refusal, ...]:
    """Empty when the spec can be served."""
    version = parse(spec.engine.version)
    if version is None:
        return (unreadable_version(spec),)
    found = list(common(spec, version, OFFER, FLAGS))
    if spec.speculator is not None and spec.speculates:
        found += _speculator(spec, spec.speculator)
    return tuple(found)


def notices(spec: DeploymentSpec) -> tuple[Notice, ...]:
    """Relaxed acceptance, which a user can only ask for through engine.args."""
    return tuple(_notices(spec))


def _speculator(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    method = speculator.method
    if spec.verifier.lora is not None and method not in WITH_LORA:
        message = (
            f"verifier.lora with speculator.method {method}: SGLang serves adapters beside ngram, eagle, eagle3, mtp, "
            "dflash and dspark only; use one of them or remove verifier.lora"
        )
        yield Refusal("spec.verifier.lora", UNSUPPORTED, message)
    if speculator.prompt_lookup_min is not None or speculator.prompt_lookup_max is not None:
        message = (
            "speculator.promptLookup: SGLang looks tokens up in a tree of all texts, which has a depth only; remove it "
            "and set --speculative-ngram-max-trie-depth in engine.args"
        )
        yield Refusal("spec.speculator.promptLookup", UNSUPPORTED, message)


def _notices(spec: DeploymentSpec) -> Iterator[Notice]:
    for flag in LOSSY_FLAGS:
        for value in FLAGS.values(spec.engine.args, flag):
            if not _is_one(value):
                message = f"engine.args sets {flag} {value}: outputs may differ from the verifier's own; remove it"
                yield Notice(Reason.LOSSY, message)


def _is_one(value: str) -> bool:
    try:
        return float(value) == 1.0
    except ValueError:
        return False
