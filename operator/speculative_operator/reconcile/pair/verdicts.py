"""What the files of a pair tell: whether it fits, whether there is memory for it, what the tuner may start from.

The one door from `reconcile` to `pairing`'s judges. Used by `pairing` and `tick`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.memo import Memo, digest
from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines import pairs as catalogue
from speculative_operator.engines.pairs import rules_of
from speculative_operator.pairing.findings import Finding
from speculative_operator.pairing.judge import judge
from speculative_operator.pairing.memory import Fit, fit
from speculative_operator.pairing.shapes import pair_facts
from speculative_operator.pairing.verdict import Expected, Verdict
from speculative_operator.physics.catalog import accelerator_of
from speculative_operator.reconcile.snapshot.records import Known

_MOST_FINDINGS = 8


@dataclass(frozen=True, slots=True)
class Judged:
    """A pair, compared and measured."""

    verdict: Verdict
    fit: Fit
    facts: PairFacts

    @property
    def word(self) -> str:
        """The verdict in one word, for `status.pair.verdict`."""
        if not self.verdict.compatible:
            return "Incompatible"
        return "Doubtful" if self.verdict.warnings else "Compatible"


def judge_pair(spec: DeploymentSpec, known: Known, memo: Memo) -> Judged:
    """The verdict on `spec`, whose models are those of `known`."""
    return memo.get(("judge", digest((spec, known))), lambda: _judge(spec, known))


def tuner_facts(spec: DeploymentSpec, known: PairFacts | None) -> PairFacts:
    """The facts that the tuner starts from: those of the catalogue, and where it has none those of the models'
    files."""
    listed = catalogue.pair_facts(spec)
    if known is None:
        return listed
    silent = [one.name for one in fields(listed) if getattr(listed, one.name) is None]
    return replace(listed, **{name: getattr(known, name) for name in silent})


def compatible(found: Judged, spec: DeploymentSpec) -> Condition:
    """The condition PairCompatible, with the Errors, or else with the Warnings and the expected acceptance length."""
    kind, verdict = ConditionType.PAIR_COMPATIBLE, found.verdict
    if not verdict.compatible:
        return mismatch(found)
    if not spec.speculates:
        return Condition(kind, Truth.UNKNOWN, Reason.NO_SPECULATOR, "the verifier is served alone: no pair to compare")
    outlook = f"{verdict.kind}{_expectation(verdict.expected)}"
    if verdict.warnings:
        return Condition(kind, Truth.TRUE, Reason.PAIR_DOUBTFUL, f"{_list(verdict.warnings)}. {outlook}")
    return Condition(kind, Truth.TRUE, Reason.PAIR_MATCHES, outlook)


def mismatch(found: Judged) -> Condition:
    """The condition PairCompatible=False, with the Errors."""
    message = _list(found.verdict.errors)
    return Condition(ConditionType.PAIR_COMPATIBLE, Truth.FALSE, Reason.PAIR_MISMATCH, message)


def memory(found: Judged) -> Condition:
    """The condition MemoryFits, with the arithmetic."""
    kind, message = ConditionType.MEMORY_FITS, found.fit.message
    if found.fit.fits is None:
        return Condition(kind, Truth.UNKNOWN, Reason.NOT_CHECKED, message)
    if found.fit.fits:
        return Condition(kind, Truth.TRUE, Reason.MEMORY_SUFFICES, message)
    return Condition(kind, Truth.FALSE, Reason.MEMORY_SHORT, message)


def _judge(spec: DeploymentSpec, known: Known) -> Judged:
    judging, speculator = spec, known.speculator
    if not spec.speculates:
        judging, speculator = replace(spec, speculator=None), None
    elif spec.speculator is not None and spec.speculator.source is not None and speculator is None:
        speculator = known.verifier  # one checkpoint, named twice
    accelerator = accelerator_of(spec)
    return Judged(
        verdict=judge(known.verifier, speculator, judging, rules_of(judging)),
        fit=fit(known.verifier, speculator, judging, accelerator),
        facts=pair_facts(known.verifier, speculator, judging, accelerator),
    )


def _list(findings: tuple[Finding, ...]) -> str:
    told = ". ".join(_describe(one) for one in findings[:_MOST_FINDINGS])
    more = len(findings) - _MOST_FINDINGS
    return f"{told}. {more} more" if more > 0 else told


def _describe(finding: Finding) -> str:
    values = [
        f"{whose} {value}"
        for whose, value in (("verifier", finding.verifier), ("speculator", finding.speculator))
        if value
    ]
    shown = f" ({', '.join(values)})" if values else ""
    remedy = f"; {finding.remedy}" if finding.remedy else ""
    return f"{finding.field}{shown}: {finding.message}{remedy}".rstrip(".")


def _expectation(expected: Expected | None) -> str:
    if expected is None:
        return ""
    return (
        f"; {expected.profiles} published profiles predict {expected.length:.1f} tokens per verification at K "
        f"{expected.k} ({expected.low:.1f} to {expected.high:.1f})"
    )
