"""Expected acceptance comes from the published profiles, by hand where that can be done."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

import pytest

from speculative_operator.domain.spec import Method, Speculator, Workload
from speculative_operator.pairing.expected import even, expect, profiles

ROOT = Path(__file__).resolve().parents[3]
PUBLISHED = ROOT / "dev" / "data" / "published" / "acceptance_profiles.csv"
OURS = ROOT / "operator" / "speculative_operator" / "pairing" / "data" / "acceptance_profiles.csv"


def test_one_measurement_by_hand() -> None:
    """DSpark on Kimi-K3: one row of class code, K 7, read to three drafts."""
    (row,) = (one for one in profiles() if one.target == "Kimi-K3" and one.workload == "code")
    found = expect(Speculator(Method.DSPARK), Workload.CODE, 3)
    assert found is not None
    assert found.length == found.low == found.high == pytest.approx(1.0 + sum(row.survival[:3]))
    assert (found.k, found.profiles) == (3, 1)
    assert found.source.startswith("vLLM blog 2026-07-27")


def test_an_acceptance_measured_at_several_k_counts_once_at_the_nearest_above() -> None:
    """n-gram on Llama-3.1-8B: four data sets at K 1, 2, 3, 4, 5, 7 and 10."""
    rows = [one for one in profiles() if one.method == "ngram" and one.k == 7]
    found = expect(Speculator(Method.NGRAM), Workload.MIXED, 6)
    assert found is not None
    lengths = [1.0 + sum(one.survival[:6]) for one in rows]
    assert found.profiles == len(rows) == 4
    assert (found.length, found.low, found.high) == pytest.approx((median(lengths), min(lengths), max(lengths)))


def test_longer_drafts_and_friendlier_work_give_more() -> None:
    def length(method: Method, workload: Workload, k: int) -> float:
        found = expect(Speculator(method), workload, k)
        assert found is not None
        return found.length

    grows = [length(Method.EAGLE3, Workload.CHAT, k) for k in range(1, 11)]
    assert grows == sorted(grows)
    assert length(Method.EAGLE3, Workload.CODE, 7) > length(Method.EAGLE3, Workload.CHAT, 7)
    assert length(Method.DFLASH, Workload.CODE, 7) > length(Method.NGRAM, Workload.CODE, 7)


def test_drafting_in_one_pass_has_figures_of_its_own_or_those_of_its_method() -> None:
    """P-EAGLE on gpt-oss-20b: 3.02 and 2.87 tokens at K 3 on code (vLLM blog 2026-03-13)."""
    found = expect(Speculator(Method.EAGLE3, parallel_drafting=True), Workload.CODE, 3)
    assert found is not None
    assert (found.low, found.length, found.high) == pytest.approx((2.87, 2.945, 3.02))


@pytest.mark.parametrize(("length", "k"), [(1.0, 3), (2.5, 3), (4.0, 3), (3.94, 7), (6.36, 15)])
def test_a_length_alone_gives_a_survival_of_that_length(length: float, k: int) -> None:
    survival = even(length, k)
    assert len(survival) == k
    assert 1.0 + sum(survival) == pytest.approx(length, abs=1e-6)
    assert list(survival) == sorted(survival, reverse=True)


@pytest.mark.parametrize("method", [Method.DRAFT_MODEL, Method.MEDUSA, Method.SUFFIX, Method.MTP])
def test_what_was_not_published_is_not_promised(method: Method) -> None:
    assert expect(Speculator(method), Workload.MIXED, 3) is None


def test_the_profiles_are_sound_and_those_of_the_source() -> None:
    assert len(profiles()) >= 100
    for one in profiles():
        assert 1 <= len(one.survival) <= one.k
        assert all(1.0 >= before >= after >= 0.0 for before, after in zip(one.survival, one.survival[1:], strict=False))
        assert one.source
    with PUBLISHED.open(encoding="utf-8", newline="") as text:
        whole = {row["profile_id"]: row for row in csv.DictReader(text)}
    with OURS.open(encoding="utf-8", newline="") as text:
        for row in csv.DictReader(text):
            assert {name: whole[row["profile_id"]][name] for name in row} == row
