"""Says why a gain is what it is, what would help, what it costs, and what the field's rules of thumb have to do with
it, in lines of a label and a text.

Used by `plan` on the models with which the operator starts, and by `explain` on what it has measured since. Pure. A
step with K drafts takes `longer` times a step without; drafts pay where they yield more tokens than that:

    acceptance length AL = longer x (1 + gain)         drafts pay from an acceptance of (longer - 1) / K on
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from speculative_operator.cli.beliefs import Belief, beliefs_at
from speculative_operator.cli.subject import Subject
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.spec import DeploymentSpec, Workload
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.pairs import hindrance, with_entry
from speculative_operator.engines.registry import engine_for
from speculative_operator.pairing.catalogue import Catalogue
from speculative_operator.pairing.catalogue_rows import Entry
from speculative_operator.reconcile.pair.verdicts import tuner_facts
from speculative_operator.reconcile.table.deciding import policy_of
from speculative_operator.tuner.outlook import Outlook, outlook
from speculative_operator.tuner.traffic import Traffic

CLEAR_PERCENT = 50.0
"""Gain in percent from which a workload is a clear candidate: 1.5 times the tokens per second."""
BEYOND_PERCENT = -99.0  # gain below which a K was not priced: its steps exceed the captured graphs
_BETTER = 5.0  # points of gain by which another choice must be better to be named
_MOST_OTHERS = 3
_FEW = 8.0  # the most requests in a step of which the rules of thumb say that drafts pay best
_TELLING = 0.1  # share of a step from which prompts are named
Line = tuple[str, str]  # label and text


def best_of(view: Outlook, load: float) -> Belief:
    """The K with the largest expected gain at a load."""
    return max(beliefs_at(view, load), key=lambda one: one.gain.mid)


def why(view: Outlook, belief: Belief, load: float) -> Iterator[Line]:
    """Yield why the gain of a K is no larger: what a step yields and takes, and what 1.5x would need."""
    if not belief.k:
        yield "why", "every K makes a step longer by more than its accepted drafts are worth"
        return
    length, longer, accepted = _step(view, belief)
    yield "why", f"a step with K {belief.k} yields {length:.2f} tokens per request and takes {longer:.2f} times as long"
    needed = (1.5 * longer - 1.0) / belief.k
    means = f"{100.0 * needed:.0f} % of the drafts accepted" if needed <= 1.0 else "more than every draft accepted"
    yield "why", f"1.5x with K {belief.k} at {load:g} requests takes {means}; {100.0 * accepted:.0f} % are"
    prompts = view.prompt_share(load, belief.k)
    if prompts >= _TELLING:
        yield "why", f"prompts take {100.0 * prompts:.0f} % of the time of a step, which drafts do not shorten"


def rules(view: Outlook, belief: Belief, load: float) -> Iterator[Line]:
    """Yield the rules of thumb that guides give, each with what holds here (docs/tuning.md)."""
    if belief.k:
        pays, accepted = pays_from(view, belief), _step(view, belief)[2]
        holds = f"drafts pay from {100.0 * pays:.0f} % on" if pays <= 1.0 else "not even every draft accepted would pay"
        bands = "60 to 80 % of the drafts accepted is good, below 50 % rather no drafts, above 85 % a larger K"
        yield "guides", f"{bands}; here {100.0 * accepted:.0f} % with K {belief.k}, and {holds}"
    few = best_of(view, _FEW)
    here = f"{belief.gain.mid:+.0f} % at {load:g}, and {few.gain.mid:+.0f} % at {_FEW:g} with K {few.k}"
    yield "guides", f"1 to 8 requests in a step gain most, 32 and more little; here {here}"


def pays_from(view: Outlook, belief: Belief) -> float:
    """Share of the drafts that must be accepted for K > 0 to be as fast as no speculator; above 1 where none is."""
    return max(_step(view, belief)[1] - 1.0, 0.0) / belief.k


def _step(view: Outlook, belief: Belief) -> tuple[float, float, float]:
    """Tokens that a step yields a request, its time over that of a step without a speculator, and the share of the
    drafts that is accepted; K > 0."""
    length = float(view.drafts.length[belief.k])
    return length, length / (1.0 + belief.gain.mid / 100.0), (length - 1.0) / belief.k


def helps(found: Subject, rows: Catalogue, traffic: Traffic, load: float) -> Iterator[Line]:
    """Yield the changes of the spec that the model expects to help at that load before anything is measured, the best
    first."""
    own, better = best_of(outlook(found.policy, traffic=traffic), load), []
    for change, policy in _changes(found, rows, own.k):
        belief = best_of(outlook(policy, traffic=traffic), load)
        if belief.gain.mid > own.gain.mid + _BETTER:
            better.append((belief, change))
    for belief, change in sorted(better, key=lambda one: -one[0].gain.mid)[:_MOST_OTHERS]:
        planned = f"{belief.gain.mid:+.0f} % with K {belief.k}, where {own.gain.mid:+.0f} % is planned"
        yield "helps", f"{change}: {planned}"
    if not better:
        nothing = f"nothing that the model knows of, by more than {_BETTER:g} points"
        yield "helps", f"{nothing}; a speculator trained for your text may"


def fewer(view: Outlook, load: float, gain: float) -> Iterator[Line]:
    """Yield what more replicas would bring, where the best K at half the load gains more than `gain` percent."""
    half = best_of(view, max(load / 2.0, 1.0))
    if load > 1.0 and half.gain.mid > gain + _BETTER:
        yield "helps", f"twice the replicas: {half.gain.mid:+.0f} % with K {half.k} at {load / 2.0:.1f} requests"


def _changes(found: Subject, rows: Catalogue, k: int) -> Iterator[tuple[str, Policy]]:
    """Yield changes of the spec, each with the policy from which the tuner would then start."""
    spec, policy = found.spec, found.policy
    for entry in _other_speculators(spec, rows):
        other = with_entry(spec, entry)
        engine = engine_for(other)
        if not hindrance(other, engine):
            estimated, knobs = tuner_facts(other, None), engine.knobs(other)
            facts = replace(policy.facts, speculator=estimated.speculator, method=estimated.method)
            constant = ", one K for every load" if knobs.actuator is Actuator.RESTART else ""
            change = f"spec.speculator: {entry.title} ({entry.method.value}{constant})"
            yield change, policy_of(other, knobs=knobs, facts=facts)
    if k and k == max(policy.knobs.ks):
        larger = replace(spec, speculation=replace(spec.speculation, max_speculative_tokens=2 * k))
        knobs = engine_for(larger).knobs(larger)
        yield f"spec.speculation.maxSpeculativeTokens: {2 * k}", replace(policy, knobs=knobs)
    if policy.workload is Workload.MIXED:
        yield "text like code (spec.speculation.workload: Code)", replace(policy, workload=Workload.CODE)


def _other_speculators(spec: DeploymentSpec, rows: Catalogue) -> Iterator[Entry]:
    own = spec.speculator.source.location if spec.speculator is not None and spec.speculator.source else ""
    for _, entry in rows.entries_for(spec.verifier.source.location):
        if entry.uri.partition("://")[2] != own or (spec.speculator and entry.method is not spec.speculator.method):
            yield entry


def cost(tokens_per_second: float, hourly: float, gain_percent: float) -> Iterator[Line]:
    """Yield the arithmetic of the cost, and what drafts save: `hourly` is the price of all accelerators that emit these
    tokens, `gain_percent` the gain over no speculation."""
    each, saved = 1000.0 * hourly / (3600.0 * tokens_per_second), 24.0 * hourly * gain_percent / 100.0
    rate, without = f"{tokens_per_second:,.0f} tokens/s", each * (1.0 + gain_percent / 100.0)
    yield "cost", f"{rate} at {hourly:.2f} an hour is {each:.3g} per 1,000 tokens, {without:.3g} without drafts"
    word, less = ("saves" if saved >= 0.0 else "loses"), abs(saved)
    yield "cost", f"all day long that {word} {less:,.2f} a day, {365.0 * less:,.0f} a year for as many tokens"
