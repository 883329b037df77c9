"""The demo's figures, from windows and logs whose answer is known."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from demo.figures import (
    Phases,
    adoptions,
    asked_ks,
    compared_blocks,
    compared_variants,
    decision_row,
    lost_seconds,
    mean_k,
    mean_tpot_ms,
    mean_ttft_ms,
    most_concurrent,
    slowdowns,
    spread,
    table_latencies,
    tables,
    unix,
    within,
)
from demo.report import ratios
from demo.scene import AUTO, OFF, STATIC
from demo.screen import Scene, picture
from demo.watch import Sight, to_series
from speculative_operator.comparing.verdict import Verdict
from speculative_operator.domain.observation import BlockTotals, Comparison, PodWindow
from speculative_operator.domain.spec import AcceleratorRequest


def sight(at: float, request_steps: float, seconds: float, tokens: float, drafted: float) -> Sight:
    return Sight(
        at,
        PodWindow(
            start=at - 5, end=at, steps=100, decode_request_steps=request_steps, step_seconds=seconds, first_tokens=2,
            generated_tokens=tokens + 2, prompt_tokens=0, running=request_steps / 100, waiting=1, drafts=request_steps,
            draft_tokens=drafted, accepted_tokens=0, ttft_seconds=0.5,
        ),
    )  # fmt: skip


def test_means_count_every_token_and_step_once() -> None:
    sights = [sight(5, 100, 1.0, 200, 300), sight(10, 300, 6.0, 300, 300)]
    assert mean_k(sights) == 1.5
    assert mean_tpot_ms(sights) == 14.0
    assert most_concurrent(sights) == 4.0
    assert mean_ttft_ms(sights) == 250.0


def test_nothing_seen_is_no_figure() -> None:
    assert mean_k([]) is None
    assert mean_tpot_ms([]) is None
    assert mean_ttft_ms([]) is None
    assert spread([]) == {"p50": None, "max": None}


def test_stretches_of_ten_seconds_are_compared_each() -> None:
    theirs = [sight(at, 100, 1.0, 100, 0) for at in (5, 10, 15, 20, 25, 30)]
    ours = [sight(at, 100, 1.0 if at < 20 else 1.2, 100, 0) for at in (5, 15, 20, 25)]
    assert slowdowns(ours, theirs, (0, 29)) == [0.0, 10.0]
    assert slowdowns(ours, theirs, (13, 40)) == [16.0, 20.0], "windows that begin or end elsewhere count in part"
    assert slowdowns([], theirs, (0, 29)) == []


def test_a_decision_is_told_with_the_seconds_until_its_table_was_in_force() -> None:
    decision = {"time": "2026-01-01T00:00:07Z", "reason": "Why", "message": "so", "to": "1-9:3", "tableVersion": 2}
    start = unix("2026-01-01T00:00:00Z")
    told = {"at": "7 s", "reason": "Why", "message": "so", "table": "1-9:3"}
    assert decision_row(decision, start, {2: start + 7.5}) == {**told, "latency": "0.50 s"}
    assert decision_row(decision, start, {}) == {**told, "latency": "–"}


def test_what_an_emulator_could_not_keep_up_with_is_added_up() -> None:
    log = "WARNING 01-01 [reporter] This machine is overloaded: the engine clock gave up %s s; its speed is too low\n"
    assert lost_seconds(log % "0.4" + "INFO 01-01 [reporter] Engine 000\n" + log % "1.5") == 1.9
    assert lost_seconds("") == 0.0


def test_k_moves_by_the_load_and_by_decisions() -> None:
    """8 requests a step; the second decision is in force a second after it was made."""
    start = unix("2026-01-01T00:00:00Z")
    decisions = [
        {"time": "2026-01-01T00:00:07Z", "from": "1-9:3 10-64:1", "to": "1-9:4 10-64:0", "tableVersion": 2},
        {"time": "2026-01-01T00:00:19Z", "from": "1-9:4 10-64:0", "to": "1-4:4 5-64:0", "tableVersion": 3},
    ]
    known = tables(decisions, {3: start + 21}, start, "")
    assert [since for since, _ in known[1:]] == [7.0, 21.0]
    seen = [sight(5, 598, 1, 1, 1), sight(10, 598, 1, 1, 1), sight(15, 1998, 1, 1, 1), sight(20, 598, 1, 1, 1),
            sight(25, 598, 1, 1, 1), sight(30, 9998, 1, 1, 1)]  # fmt: skip
    assert [k for _, k in asked_ks(seen, known)] == [3, 4, 0, 4, 0, None]
    assert [k for _, k in asked_ks(seen[:1], tables([], {}, start, "1-64:2"))] == [2]


def test_phases_pick_their_windows() -> None:
    phases = Phases.of(100)
    assert [s.at for s in within([sight(at, 1, 1, 1, 1) for at in (1, 20, 55, 95)], phases.low)] == [20]


def test_latency_is_from_decision_to_the_engines_word() -> None:
    log = (
        "INFO speculative: table version 2 in force since 2026-01-01T00:00:10.500+00:00: 1-16:4 17-256:1\n"
        "INFO something else\n"
        "INFO 01-01 00:01:00 speculative: table version 3 in force since 2026-01-01T00:01:00.250+00:00: 1-256:0\n"
    )
    adopted = adoptions(log)
    assert set(adopted) == {2, 3}
    decided = [
        {"time": "2026-01-01T00:00:10.000000Z", "tableVersion": 2},
        {"time": "2026-01-01T00:00:59.000000Z", "tableVersion": 3},
        {"time": "2026-01-01T00:02:00Z", "tableVersion": 4},
    ]
    assert table_latencies(decided, adopted) == [0.5, 1.25]
    assert spread([0.5, 1.25]) == {"p50": 0.875, "max": 1.25}
    assert unix("1970-01-01T00:00:01Z") == 1.0


def test_prometheus_matrix_becomes_series() -> None:
    found = to_series([{"metric": {"__name__": "a", "pod": "p"}, "values": [[1, "2"], [3, "NaN"]]}])
    assert found[0].name == "a"
    assert found[0].labels == {"pod": "p"}
    assert found[0].samples[0] == (1.0, 2.0)


def test_compared_blocks_are_counted_by_the_k_that_was_tried() -> None:
    def tried(k: int, against: int, blocks: float) -> Comparison:
        totals = BlockTotals(16, 0.1, 80, 0.5, 200)
        return Comparison(k, against, 5, 6, blocks, totals, totals, 0.0, 0.0)

    window = replace(sight(5, 100, 1.0, 200, 300).window, comparisons=(tried(5, 4, 2), tried(3, 4, 1), tried(3, 2, 4)))
    assert compared_blocks(window) == {3: 5.0, 5: 2.0}
    assert compared_blocks(None) == {}


def test_the_tuned_variant_is_held_against_the_others_and_drawn() -> None:
    """Half the seconds of a token, by as many requests, at constant rates."""
    chance = np.random.default_rng(1)

    def seen(pace: float) -> list[Sight]:
        return [sight(at, 400, 4.0 * pace * chance.uniform(0.9, 1.1), 400, 0) for at in range(5, 605, 5)]

    found = compared_variants({AUTO: seen(0.5), OFF: seen(1.0)}, AcceleratorRequest("H100-SXM"))
    assert {role: one.verdict for role, one in found.items()} == {OFF: Verdict.BETTER}
    assert STATIC not in found
    (drawn,) = [one for one in ratios(found).data if one["mode"] == "markers"]
    assert drawn["x"][0] == pytest.approx(0.5, rel=0.03)
    console = Console(file=io.StringIO(), width=112)
    console.print(picture(Scene(compared=found)))
    assert isinstance(console.file, io.StringIO)
    assert "against A, no speculation, at equal batch size: Better" in console.file.getvalue()
