"""The acceptance posterior: what is seen of each position, how it fades, and what it says about another K."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tuner.plant import FACTS, KNOBS

from speculative_operator.domain.spec import Workload
from speculative_operator.domain.table import KTable
from speculative_operator.physics.acceptance import RunLengths
from speculative_operator.tuner.acceptance import (
    AcceptanceEvidence,
    DraftSample,
    acceptance,
    age,
    draft_sample,
    learn_acceptance,
    usable_positions,
)
from speculative_operator.tuner.prior import acceptance_prior

PRIOR = acceptance_prior(FACTS, KNOBS, Workload.CHAT)
LONG_PRIOR = acceptance_prior(FACTS, replace(KNOBS, ks=tuple(range(9))), Workload.CHAT)
MIXED = KTable.from_rows([[1, 10, 4], [11, 40, 2], [41, 256, 0]])
WINDOW = 5.0


def after(*samples: DraftSample, start: AcceptanceEvidence | None = None) -> AcceptanceEvidence:
    evidence = start or AcceptanceEvidence()
    for sample in samples:
        evidence = learn_acceptance(evidence, sample, PRIOR, WINDOW)
    return evidence


def constant(conditional: float, drafts: float, k: int = 5) -> DraftSample:
    return draft_sample(drafts, tuple(drafts * conditional**j for j in range(1, k + 1)), k, 0.0, float(k))


def first(evidence: AcceptanceEvidence) -> float:
    return float(acceptance(evidence, PRIOR).survival[0])


def doubt(evidence: AcceptanceEvidence, k: int = 3) -> float:
    return float(acceptance(evidence, PRIOR).deviation(np.array(k), np.array(0)))


def test_without_drafts_the_prior_speaks() -> None:
    model = acceptance(AcceptanceEvidence(), PRIOR)
    assert model.survival == pytest.approx(np.cumprod(PRIOR))
    assert model.length == pytest.approx([1.0, *(1.0 + np.cumsum(np.cumprod(PRIOR)))])
    assert float(model.deviation(np.array(3), np.array(3))) == 0.0


def test_the_mean_is_that_of_a_beta_posterior() -> None:
    """A first position seen in n effective drafts lies between the prior and what was seen, in the ratio of weights."""
    near = float(PRIOR[0]) + 0.1
    seen = first(after(constant(near, 2000.0)))
    weight = (seen - PRIOR[0]) / (near - PRIOR[0])
    more = (first(after(constant(near, 4000.0))) - PRIOR[0]) / (near - PRIOR[0])
    assert 0.5 < weight < more < 1.0
    assert weight / (1 - weight) * 2 == pytest.approx(more / (1 - more), rel=1e-6)


def test_two_hundred_drafts_that_all_fail_refute_the_prior() -> None:
    """With a prior of the same weight whatever the counts say, more than half of it was left."""
    assert acceptance(after(constant(0.0, 200.0)), PRIOR).length[3] < 1.3
    assert acceptance(after(constant(0.0, 600.0)), PRIOR).length[3] < 1.07


@given(seen=st.floats(0.0, 0.99), drafts=st.floats(1.0, 1e5))
def test_counts_move_the_mean_towards_them_whatever_they_are(seen: float, drafts: float) -> None:
    low, high = sorted((seen, float(PRIOR[0])))
    assert low - 1e-9 <= first(after(constant(seen, drafts))) <= high + 1e-9


def test_one_window_tells_that_texts_have_changed() -> None:
    known = after(*[constant(0.8, 20_000)] * 6)
    changed = after(constant(0.0, 1_000), start=known)
    assert changed.reached[0] < 150.0, "what was known counts a tenth of what refutes it"
    assert first(changed) < 0.15
    same = after(constant(0.8, 1_000), start=known)
    assert same.reached[0] > 1_500.0


def test_evidence_wins_over_the_prior() -> None:
    model = acceptance(after(*[constant(0.9, 20_000)] * 6), PRIOR)
    assert model.survival[0] == pytest.approx(0.9, abs=0.02)
    assert model.length[5] == pytest.approx(1 + sum(0.9**j for j in range(1, 6)), rel=0.03)


def test_nothing_accepted_leaves_nothing() -> None:
    assert acceptance(after(*[constant(0.0, 20_000)] * 6), PRIOR).length[5] < 1.06


def test_counts_of_clustered_tokens_are_deflated() -> None:
    """A binomial of n drafts would be surer than this."""
    drafts = 20_000.0
    model = acceptance(after(constant(0.7, drafts)), PRIOR)
    assert np.sqrt(model.variance[0]) > 2.0 * np.sqrt(0.7 * 0.3 / drafts)


def test_unseen_positions_follow_the_seen_ones() -> None:
    good, bad = (acceptance(after(*[constant(a, 20_000, k=2)] * 6), PRIOR) for a in (0.9, 0.3))
    prior = acceptance(AcceptanceEvidence(), PRIOR)
    conditional = [float(model.survival[3] / model.survival[2]) for model in (good, prior, bad)]
    assert conditional[0] > conditional[1] > conditional[2]


def test_a_position_fades_as_it_is_seen_and_not_while_it_rests() -> None:
    deep = after(*[constant(0.6, 20_000)] * 60)
    shallow = after(*[constant(0.6, 20_000, k=1)] * 40, start=deep)
    assert shallow.reached[4] == pytest.approx(deep.reached[4])
    assert shallow.reached[0] == pytest.approx(deep.reached[0], rel=0.02)
    assert first(after(*[constant(0.5, 20_000)] * 60, start=deep)) == pytest.approx(0.5, abs=0.03)


def test_at_high_load_evidence_still_lasts_a_minute() -> None:
    """Drafts of one window come from the same requests, however many there are."""
    busy = after(*[constant(0.7, 200_000)] * 3)
    assert busy.drafts > 400_000


def test_what_nothing_renews_is_kept_and_less_sure() -> None:
    evidence = after(*[constant(0.9, 20_000)] * 5)
    old = age(evidence, 7200.0)
    assert old.accepted[0] / old.reached[0] == pytest.approx(evidence.accepted[0] / evidence.reached[0])
    assert doubt(evidence) < doubt(old) < doubt(AcceptanceEvidence()) * 1.01
    assert age(evidence, -100.0) == evidence


def test_doubt_shrinks_with_drafts() -> None:
    assert doubt(after(constant(0.67, 20_000))) < doubt(after(constant(0.67, 100))) / 2


def test_two_k_share_their_doubt() -> None:
    model = acceptance(after(constant(0.67, 2000)), PRIOR)
    apart = model.deviation(np.array([4, 4]), np.array([3, 0]))
    assert apart[0] < apart[1]


class TestChange:
    """Detection of a change in how many drafts are accepted."""

    usual = after(*[constant(0.7, 4000)] * 60)

    def test_a_dead_drafter_is_noticed_within_seconds(self) -> None:
        soon = after(*[constant(0.0, 4000)] * 3, start=self.usual)
        assert first(soon) < 0.5 * first(self.usual)
        later = after(*[constant(0.0, 4000)] * 3, start=soon)
        assert acceptance(later, PRIOR).length[5] < 1.15

    def test_a_prior_that_errs_does_not_come_back(self) -> None:
        evidence = AcceptanceEvidence()
        for _ in range(40):
            evidence = after(constant(0.0, 300), start=evidence)
            believed = first(evidence)
        assert believed < 0.05, "each alarm would bring the prior back"

    def test_so_is_one_that_came_back(self) -> None:
        evidence = after(*[constant(0.0, 4000)] * 60)
        evidence = after(*[constant(0.7, 4000)] * 5, start=evidence)
        assert first(evidence) > 0.55

    def test_a_slow_drift_is_followed(self) -> None:
        evidence = self.usual
        for level in np.linspace(0.7, 0.6, 60):
            evidence = after(constant(float(level), 4000), start=evidence)
        assert first(evidence) == pytest.approx(0.61, abs=0.03)

    @pytest.mark.parametrize("seed", range(3))
    def test_stationary_noise_alarms_nobody(self, seed: int) -> None:
        """Accepted tokens in clusters of ten: what the deflation stands for. Three hours of windows."""
        random = np.random.default_rng(seed)
        evidence = self.usual
        for _ in range(2000):
            drafts, counts = 2000, [2000.0]
            for _ in range(5):
                counts.append(10.0 * random.binomial(round(counts[-1] / 10), 0.7))
            held = evidence.drafts
            evidence = after(draft_sample(drafts, tuple(counts[1:]), 5, 0.0, 5.0), start=evidence)
            assert evidence.drafts > 0.5 * held
        assert first(evidence) == pytest.approx(0.7, abs=0.04)

    def test_a_few_drafts_are_no_change(self) -> None:
        evidence = after(*[constant(0.0, 10.0)] * 3, start=self.usual)
        assert first(evidence) > 0.6


class TestAcrossK:
    """A source of two kinds of runs, seen at one K, tells acceptance lengths at others."""

    runs = pytest.mark.parametrize(
        "runs", [RunLengths(0.3, 0.9, 0.4), RunLengths(0.6, 0.85, 0.2), RunLengths(0.12, 0.77, 0.05)], ids=str
    )

    @staticmethod
    def lengths(runs: RunLengths, seen: int) -> list[float]:
        """Lengths believed for K = 1..8 after five minutes at K = `seen`, over the true ones."""
        evidence, drafts = AcceptanceEvidence(), 20_000.0
        sample = draft_sample(drafts, tuple((drafts * runs.survival(seen)).tolist()), seen, 0.0, float(seen))
        for _ in range(60):
            evidence = learn_acceptance(evidence, sample, LONG_PRIOR, WINDOW)
        believed = acceptance(evidence, LONG_PRIOR).length
        return [float(believed[k]) / runs.length(k) for k in range(1, 9)]

    @runs
    @pytest.mark.parametrize("seen", [3, 5])
    def test_lengths_up_to_the_k_seen_and_the_next_are_right(self, runs: RunLengths, seen: int) -> None:
        assert self.lengths(runs, seen)[: seen + 1] == pytest.approx([1.0] * (seen + 1), abs=0.02)

    @runs
    def test_lengths_far_beyond_the_k_seen_are_right(self, runs: RunLengths) -> None:
        assert self.lengths(runs, 3) == pytest.approx([1.0] * 8, abs=0.02)

    def test_a_single_geometric_is_the_same_at_every_k(self) -> None:
        model = acceptance(after(*[constant(0.7, 20_000, k=3)] * 40), PRIOR)
        assert model.length[1:4] == pytest.approx([1.7, 2.19, 2.533], rel=0.015)

    def test_k_between_two_is_read_as_both(self) -> None:
        """Half of the drafts at K = 2, half at 3."""
        runs, drafts = RunLengths(0.3, 0.9, 0.4), 20_000.0
        counts = np.append(runs.survival(2), 0.0) / 2 + runs.survival(3) / 2
        sample = draft_sample(drafts, tuple((drafts * counts).tolist()), 2, 0.5, 2.5)
        model = acceptance(after(*[sample] * 40), PRIOR)
        assert model.length[1:] == pytest.approx([runs.length(k) for k in range(1, 6)], rel=0.05)


@pytest.mark.parametrize(
    ("mean", "batch", "table", "expected"),
    [
        (4.0, 5, MIXED, (4, 0.0)),  # one K near this load
        (2.0, 30, MIXED, (2, 0.0)),
        (4.01, 10, MIXED, (4, 0.0)),  # both near, the mean says the larger throughout
        (2.0, 10, MIXED, (2, 0.0)),
        (3.0, 10, MIXED, (2, 0.0)),  # half 4 and half 2, or all 3: only two positions are sure
        (2.6, 10, MIXED, (2, 0.0)),
        (1.4, 30, KTable.from_rows([[1, 30, 2], [31, 256, 1]]), (1, pytest.approx(0.4))),  # two neighbours: solvable
        (3.0, 30, KTable.constant(5, 256), (3, 0.0)),  # the pods still run the table before
        (2.5, 30, KTable.constant(5, 256), (2, 0.0)),
        (0.7, 30, KTable.constant(0, 256), (0, 0.0)),
    ],
)
def test_only_positions_that_every_step_drafted_count(
    mean: float, batch: float, table: KTable, expected: tuple[int, float]
) -> None:
    assert usable_positions(mean, batch, (table,)) == expected


def test_a_recent_table_may_still_be_running() -> None:
    old, new = KTable.constant(4, 256), KTable.constant(1, 256)
    assert usable_positions(2.5, 30, (new, old)) == (1, 0.0)


def test_mixed_neighbours_do_not_look_like_rejections() -> None:
    # 400 drafts at K=1 and 600 at K=2, all accepted
    sample = draft_sample(1000.0, (1000.0, 600.0), 1, 0.6)
    assert sample.reached == pytest.approx((1000.0, 600.0))
    assert sample.accepted == pytest.approx((1000.0, 600.0))


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e6),
            st.lists(st.floats(0, 1), min_size=1, max_size=20),
            st.integers(0, 20),
            st.floats(0, 1),
            st.floats(0, 20),
            st.floats(0, 1e6),
        ),
        max_size=6,
    )
)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_posteriors_are_survival_curves(windows: list[tuple[float, list[float], int, float, float, float]]) -> None:
    evidence = AcceptanceEvidence()
    for drafts, conditional, certain, share, mean_k, elapsed in windows:
        counts = tuple((drafts * np.cumprod(conditional)).tolist())
        sample = draft_sample(drafts, counts, certain, share, mean_k)
        assert all(0 <= a <= r for a, r in zip(sample.accepted, sample.reached, strict=True))
        evidence = learn_acceptance(evidence, sample, PRIOR, elapsed)
    model = acceptance(evidence, PRIOR)
    ks = np.arange(len(PRIOR) + 1)
    assert np.all((model.survival >= 0) & (model.survival <= 1))
    assert np.all(np.diff(model.survival) <= 1e-12)
    assert model.length[0] == 1.0
    assert np.all(model.length[1:] >= 1.0)
    assert np.all(model.length <= 1.0 + ks * 1.6 + 1e-9)
    assert np.all(np.isfinite(model.deviation(ks[None, :], ks[:, None])))
    assert len(evidence.reached) in (0, len(PRIOR))
