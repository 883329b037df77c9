"""`speculative pairs --measured`: rows that a catalogue takes as they are, the best first."""

from __future__ import annotations

from typing import Any

from speculative_operator.cli.measured import csv_of
from speculative_operator.pairing.catalogue import catalogue_of, pick
from speculative_operator.pairing.catalogue_rows import parse
from speculative_operator.pairing.ranking import Worth

TIME = "2026-11-28T12:00:00Z"


def entry(speculator: str, verdict: str, length: str = "", k: Any = 3) -> dict[str, Any]:
    block = {"speculator": f"hf://{speculator}", "method": "eagle3", "verdict": verdict, "against": "a", "why": "b"}
    return {**block, "time": TIME, **({"acceptanceLength": length, "acceptanceK": k} if length else {})}


def body(*verdicts: dict[str, Any], name: str = "qwen") -> dict[str, Any]:
    picked = {"verifier": "hf://Qwen/Qwen3-8B", "speculator": "hf://me/best", "method": "eagle3", "reason": "x"}
    status = {"picked": picked, "measured": {"of": "1", "reason": "AllMeasured", "verdicts": list(verdicts)}}
    spec = {"verifier": {"model": "hf://Qwen/Qwen3-8B@main"}, "accelerator": {"product": "H100-SXM"}}
    return {"metadata": {"name": name, "namespace": "models"}, "spec": spec, "status": status}


def test_the_best_goes_first_and_what_failed_is_no_row() -> None:
    text = csv_of([
        body(entry("me/slow", "Worse", "1.80"), entry("me/best", "Better", "2.95"), entry("me/bad", "Failed"),
             entry("me/same", "Equivalent")),
        body(entry("me/same", "Worse"), name="second"),
        {"metadata": {"name": "other", "namespace": "models"}, "spec": {}, "status": {}},
    ])  # fmt: skip
    rows = parse(text, "measured")
    assert [one.speculator for one in rows] == ["me/best", "me/same", "me/slow"]
    best = rows[0]
    assert (best.acceptance_length, best.acceptance_k, best.date) == (2.95, 3, "2026-11-28")
    assert best.source == "measured in models/qwen on H100-SXM"
    choice = pick("Qwen/Qwen3-8B", (), catalogue_of(text), lambda _: Worth(0, True, 1.0))
    assert choice.entry is not None
    assert choice.entry.speculator == "me/best"


def test_garbled_verdicts_make_no_row_that_a_catalogue_would_refuse() -> None:
    text = csv_of(
        [
            body(
                entry("me/../x y", "Worse"),
                entry("me/a", "Worse", "nan"),
                entry("me/b", "Worse", "99", 3),
                {},
            )
        ]
    )
    assert [one.acceptance_length for one in parse(text, "measured")] == [None, None, None]
