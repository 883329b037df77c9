"""Verdicts on pairs of which public sources say whether they work: right on every one."""

from __future__ import annotations

import pytest
from tests.unit.pairing.known_pairs import Known, facts, models, pairs, spec_of

from speculative_operator.domain.spec import Method, Scheme
from speculative_operator.engines.pairs import rules_of
from speculative_operator.pairing.judge import judge
from speculative_operator.pairing.verdict import Kind, Verdict

PAIRS = pairs()


def verdict(known: Known) -> Verdict:
    scheme = Scheme.PVC if "pvc" in known.options else Scheme.HF
    speculator = facts(known.speculator, scheme) if known.speculator else None
    spec = spec_of(known)
    return judge(facts(known.verifier), speculator, spec, rules_of(spec))


@pytest.mark.parametrize("known", PAIRS, ids=lambda one: one.title)
def test_the_verdict_is_right(known: Known) -> None:
    said = verdict(known)
    assert tuple(one.code for one in said.errors) == known.errors
    assert set(known.warnings) <= {one.code for one in said.warnings}
    assert said.kind == known.kind
    for one in said.errors:
        assert one.field.startswith(("spec.", "speculator ", "verifier "))
        assert one.message
        assert one.remedy


def test_a_pair_that_works_is_warned_of_only_where_it_is_expected() -> None:
    """Warnings that come for every pair are read by nobody."""
    surprising = {
        known.title: {one.code for one in verdict(known).warnings} - set(known.warnings)
        for known in PAIRS
        if not known.errors
    }
    assert {title: codes for title, codes in surprising.items() if codes} == {}


def test_there_are_enough_of_every_kind_and_both_outcomes() -> None:
    assert len(PAIRS) >= 40
    assert {one.kind for one in PAIRS} == {kind.value for kind in Kind} - {Kind.UNKNOWN.value}
    refused = [one for one in PAIRS if one.errors]
    assert len(refused) >= 20
    assert len(PAIRS) - len(refused) >= 20
    assert {one.method for one in PAIRS} == set(Method) - {Method.NGRAM_GPU}


def test_every_fact_and_truth_names_its_source() -> None:
    assert all(one["source"] for one in models().values())
    assert all(one.truth for one in PAIRS)
    used = {one.verifier for one in PAIRS} | {one.speculator for one in PAIRS}
    assert used - {""} == set(models())
