"""The judge of texts that no speculator can guess: what it compares, and what it calls slower."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from bench.tuner.ledger import CAUSES, GUESSABLE, PROMPTS, TAX, Ledger
from bench.tuner.unguessable import kind_of, main, windows
from bench.tuner.unguessable_draw import MOST_TAX, Pair, drawn
from speculative_lab.plant import law as laws
from speculative_lab.plant import layout as at
from speculative_lab.plant.serving import Outcome, constant, with_table

SECONDS = 300.0


def outcome(periods: float, further: float) -> Outcome:
    minutes = np.zeros((5, at.MINUTE_FIELDS))
    minutes[:, at.M_PERIODS], minutes[:, at.M_FURTHER] = periods, further
    minutes[:, at.M_TOKENS], minutes[:, at.M_RESIDENCE] = further, periods
    return Outcome(minutes, np.zeros(0), np.zeros(0))


def test_a_window_is_slower_by_the_time_of_a_token() -> None:
    reference = outcome(100.0, 1000.0)
    assert windows(outcome(103.0, 1000.0), reference)[0] == pytest.approx((3.0, 3.0))
    assert windows(outcome(100.0, 2000.0), reference)[0] == pytest.approx((-50.0, -50.0))
    assert windows(outcome(1.0, 10.0), reference) == {}, "hardly anything was served"


@pytest.mark.parametrize(
    ("number", "dead", "kind"),
    [
        (0, (0.0, 1500.0), "start"),
        (1, (0.0, 1500.0), "rest"),
        (1, (400.0, 900.0), "change"),
        (2, (400.0, 900.0), "rest"),
        (0, (400.0, 900.0), "guessable"),
        (3, (400.0, 900.0), "guessable"),
    ],
)
def test_windows_are_told_apart_by_their_text(number: int, dead: tuple[float, float], kind: str) -> None:
    assert kind_of(number, dead) == kind


@pytest.mark.parametrize("number", range(5))
def test_the_same_requests_come_to_all_three(number: int) -> None:
    pair = drawn(3, number, SECONDS)
    for tuned, plain, copy in zip(pair.tuned.replicas, pair.plain.replicas, pair.copy.replicas, strict=True):
        assert tuned.requests is plain.requests is copy.requests
        seeds = {float(one.machine.par[at.NOISE_SEED]) for one in (tuned, plain, copy)}
        assert len(seeds) == 3
        assert 1.0 <= float((tuned.machine.k_quirk / plain.machine.k_quirk).max()) <= 1.0 + MOST_TAX
        assert not plain.machine.par[[at.DRAFT_BASE, at.DRAFT_PASS, at.DRAFT_PASS_REQUEST, at.DRAFT_PROMPT]].any()


def never_guessable(number: int, skips_prompts: bool) -> Pair:
    return next(pair for n in range(number, 60, 5) if (pair := drawn(5, n, SECONDS, skips_prompts)).dead[0] == 0.0)


@pytest.mark.parametrize("number", range(5))
def test_hardly_a_draft_is_accepted(number: int) -> None:
    pair = never_guessable(number, skips_prompts=False)
    never, always = (with_table(pair.tuned, constant(pair.tuned, k)) for k in (0, 1))
    each = [one.minutes[:, at.M_PERIODS].sum() / one.minutes[:, at.M_FURTHER].sum() for one in (never, always)]
    assert each[1] > 0.93 * each[0]


def test_off_costs_the_tax_alone_where_heads_skip_prompts() -> None:
    """The ledger of a pod whose table is 0 throughout has nothing but the plug-in's own time and the first eight or
    64 steps; with prompts computed by the head while off it has them too."""
    lost = {}
    for skips in (True, False):
        pair = never_guessable(1, skips)
        policy = replace(pair.tuned.policy, knobs=replace(pair.tuned.policy.knobs, ks=(0,)))
        ledger = Ledger(pair)
        laws.run(pair.tuned, policy, laws.PLUG_IN, ledger)
        lost[skips] = ledger.lost[0]
        assert ledger.lost[0][GUESSABLE] == 0.0
        assert 0.0 < ledger.lost[0][TAX] <= MOST_TAX * ledger.whole[0] * 1.001
    assert lost[False][PROMPTS] > 10.0 * abs(lost[True][PROMPTS])


def test_worlds_are_judged(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seed", "4242", "--count", "3", "--minutes", "5.1", "--jobs", "1"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["windows"] > 0
    assert set(told["causes"]) == set(CAUSES)
    assert set(told["tuned"]) == set(told["chance"]) == {"over", "worst", "median", "mean"}
