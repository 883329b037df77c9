"""Decides about a canary that has an analysis (`spec.route.canary.analysis`): it waits, gets the weight of the next
step, is promoted, or is taken back. Called by `tick`.

Each step compares what both objects did since it began. Missing figures decide nothing before the deadline, and at the
deadline they take the canary back. The weight follows the status as it is stored (`weighed`), one reconcile after the
decision, so that the operator may end at any moment: it finds the step where it was, reads the figures since then
again, and decides the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from speculative_operator.comparing.verdict import Comparison, Limits, Verdict, compare
from speculative_operator.domain.formats import duration
from speculative_operator.domain.platform import Analysis, Canary, Promotion
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Speculator
from speculative_operator.pairing.catalogue import Catalogue
from speculative_operator.pairing.expected import even, expect
from speculative_operator.physics.acceptance import expected_tokens, extend
from speculative_operator.reconcile.observed.route import left_out
from speculative_operator.reconcile.snapshot.canaries import COMPARED, Phase, Progress
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.world import Evidence
from speculative_operator.render.metadata import digest

_UNSEEN = "-"
"""Stands for the hash of what is analysed while there is no canary, or its spec is refused."""
_PASSED = frozenset({Verdict.BETTER, Verdict.EQUIVALENT})


def weighed(world: Snapshot) -> Snapshot:
    """`world` with the weight that the canary's analysis has reached by the stored status; as it is without one."""
    asked = _asked(world)
    if asked is None or world.spec.route is None:
        return world
    (canary, analysis), weight = asked, 0
    known = _standing(world, canary, analysis)
    # By phase and step: what else the status says of the weight is for people.
    if known is not None and known.phase in COMPARED:
        weight = analysis.steps[known.step - 1]
    elif known is not None and known.phase is Phase.PROMOTED:
        weight = 100
    route = replace(world.spec.route, canary=replace(canary, weight=weight))
    return replace(world, spec=replace(world.spec, route=route))


def follow(world: Snapshot, now: float) -> Progress | None:
    """The analysis after this reconcile; None where the spec asks for none. `now` in unix seconds."""
    asked = _asked(world)
    if asked is None:
        return None
    canary, analysis = asked
    known = _standing(world, canary, analysis)
    if known is None or known.phase is Phase.WAITING:
        return _begin(world, canary, analysis, now)
    if known.phase not in COMPARED:
        return known
    fault = next(_faults(world, known, analysis), None)
    return _taken_back(known, *fault) if fault is not None else _judge(world, known, analysis, now)


def _asked(world: Snapshot) -> tuple[Canary, Analysis] | None:
    canary = world.spec.route.canary if world.spec.route is not None else None
    return (canary, canary.analysis) if canary is not None and canary.analysis is not None else None


def _subject(world: Snapshot, canary: Canary, analysis: Analysis) -> str:
    """Hash of the canary as it is made and of the analysis; empty while the canary cannot be read. Fields by hand:
    those of another release must not begin every analysis anew."""
    made_of = world.canary.made_of if world.canary is not None else ""
    limits = [analysis.step_seconds, analysis.deadline_seconds, analysis.worse_by_percent]
    limits += [analysis.ttft_worse_by_percent, analysis.least_acceptance_percent]
    asked = [canary.name, made_of, list(analysis.steps), limits, analysis.promotion.value]
    return digest(asked, 16) if made_of else ""


def _standing(world: Snapshot, canary: Canary, analysis: Analysis) -> Progress | None:
    """The analysis in the status, as long as it is of this canary and of this analysis. It stays while the canary
    cannot be read; and once promoted, while no pod of this object could take its requests."""
    known, subject = world.status.canary, _subject(world, canary, analysis)
    if known is None or known.name != canary.name:
        return None
    alone = known.phase is Phase.PROMOTED and world.rollout.ready == 0
    if known.of != subject and subject and not alone:
        return None
    return known if known.phase not in COMPARED or 0 < known.step <= len(analysis.steps) else None


def _begin(world: Snapshot, canary: Canary, analysis: Analysis, now: float) -> Progress:
    """The first step where the canary can answer; else the wait for it."""
    subject, seen, why = _subject(world, canary, analysis), world.canary, left_out(world)
    if why or seen is None or not subject or not world.capabilities.http_route:
        why = why or "the cluster does not serve the kind HTTPRoute"
        message = f"the analysis begins when {canary.name} can answer: {why}"
        return Progress(canary.name, subject or _UNSEEN, Phase.WAITING, Reason.CANARY_LEFT_OUT, message)
    first = Progress(canary.name, subject, Phase.PROGRESSING, Reason.CANARY_STEPS, "", restarts=seen.restarts)
    return _in_step(first, analysis, 1, now)


def _in_step(known: Progress, analysis: Analysis, step: int, now: float) -> Progress:
    weight, least, most = analysis.steps[step - 1], duration(analysis.step_seconds), duration(analysis.deadline_seconds)
    message = (
        f"step {step} of {len(analysis.steps)}: {known.name} gets {weight} % of the requests for at least {least}, and "
        f"for at most {most}"
    )
    return replace(
        known, phase=Phase.PROGRESSING, reason=Reason.CANARY_STEPS, message=message, step=step, weight=weight,
        since=float(now), comparison="",
    )  # fmt: skip


def _judge(world: Snapshot, known: Progress, analysis: Analysis, now: float) -> Progress:
    """The analysis after one more look at both objects."""
    seen, since = world.evidence, known.since
    if seen is None or since is None:
        return known
    tolerated, late = analysis.worse_by_percent / 100.0, analysis.ttft_worse_by_percent / 100.0
    limits = Limits(equivalent=tolerated, tolerated=tolerated, ttft_tolerated=late)
    found = compared(world, seen, limits)
    known = replace(known, comparison=str(found))
    if worse := found.losses(limits):
        return _taken_back(known, Reason.CANARY_WORSE, f"it is worse than {world.spec.name} at {worse}")
    if known.phase is Phase.NEEDS_APPROVAL:
        accepted = world.spec.accept == known.accept and not left_out(world)
        return _promoted(world, known) if accepted else known
    # Only what every token costs decides for it; the rest decides against it.
    passes = bool(found.pace) and found.pace <= _PASSED
    unsure = "" if passes else seen.gap or f"{found.why} (A is {world.spec.name}, B {known.name})"
    missing = left_out(world) or unsure
    if now - since < (analysis.deadline_seconds if missing else analysis.step_seconds):
        return known
    if not missing:
        return _passed(world, known, analysis, now)
    why = f"after {duration(analysis.deadline_seconds)} in step {known.step} nothing is certain: {missing}"
    return _taken_back(known, Reason.CANARY_UNDECIDED, why)


def _passed(world: Snapshot, known: Progress, analysis: Analysis, now: float) -> Progress:
    if known.step < len(analysis.steps):
        return _in_step(known, analysis, known.step + 1, now)
    if analysis.promotion is Promotion.APPROVE:
        message = f"{known.name} has passed all steps; to promote it: speculative approve {world.spec.name}"
        return replace(known, phase=Phase.NEEDS_APPROVAL, reason=Reason.CANARY_NEEDS_APPROVAL, message=message)
    return _promoted(world, known)


def _promoted(world: Snapshot, known: Progress) -> Progress:
    message = (
        f"{known.name} gets all requests. To finish, write what differs in its spec into {world.spec.name}, and remove "
        "route.canary when the pods of that are ready; the operator changes and deletes neither object"
    )
    return replace(known, phase=Phase.PROMOTED, reason=Reason.CANARY_PROMOTED, message=message, weight=100)


def _taken_back(known: Progress, reason: Reason, why: str) -> Progress:
    message = (
        f"{known.name} gets no requests any more: {why}. An edit of its spec or of the analysis begins anew; its pods "
        "run on until you delete it"
    )
    return replace(known, phase=Phase.TAKEN_BACK, reason=reason, message=message, weight=0)


def _faults(world: Snapshot, known: Progress, analysis: Analysis) -> Iterator[tuple[Reason, str]]:
    """Why the canary is taken back whatever the comparison says."""
    seen = world.canary
    if seen is not None and seen.restarts > known.restarts:
        count = seen.restarts - known.restarts
        yield Reason.CANARY_FAILED, f"containers of its pods restarted {count} times since the analysis began"
    if seen is not None and seen.outputs_differ:
        yield Reason.CANARY_FAILED, "its condition OutputsVerified is False"
    if world.evidence is not None and (why := _low_acceptance(world.evidence, analysis, world.catalogue)):
        yield Reason.CANARY_LOW_ACCEPTANCE, why


def _low_acceptance(seen: Evidence, analysis: Analysis, catalogue: Catalogue) -> str:
    """In what the canary's acceptance falls short of the published one; empty where it does not, where this object's
    does so too (then it is the requests), or where nobody can tell."""
    speculator, own, told = seen.spec.speculator, seen.stable.gained, seen.canary.acceptance
    if speculator is None or told is None:
        return ""
    (k, gained), share = told, analysis.least_acceptance_percent / 100.0
    published = _published(seen.spec, speculator, k, catalogue)
    if published is None or gained >= share * (published - 1.0) or (own is not None and gained >= share * own):
        return ""
    return (
        f"a verification brings {1.0 + gained:.2f} tokens with {k} drafts; published are {published:.2f}, and "
        f"leastAcceptancePercent {analysis.least_acceptance_percent} asks for {1.0 + share * (published - 1.0):.2f}"
    )


def _published(spec: DeploymentSpec, speculator: Speculator, k: int, catalogue: Catalogue) -> float | None:
    """Published acceptance length at `k` drafts: of this speculator where the catalogue has it, else of its method."""
    uri = speculator.source.uri if speculator.source is not None else ""
    for _, entry in catalogue.entries_for(spec.verifier.source.uri):
        if (entry.method, entry.uri) == (speculator.method, uri) and entry.acceptance_length and entry.acceptance_k:
            survival = np.array(even(entry.acceptance_length, entry.acceptance_k))
            return expected_tokens(extend(survival, k), k)
    found = expect(speculator, spec.speculation.workload, k)
    return found.length if found is not None else None


def compared(world: Snapshot, seen: Evidence, limits: Limits) -> Comparison:
    """Both objects of an analysis by their samples; not anew where a reconcile brought none."""
    sides = seen.stable.samples, seen.canary.samples
    return world.memo.get(("compare", sides, limits), lambda: compare(*sides, limits))
