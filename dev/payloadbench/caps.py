"""Caps by request on the real engine: the same mixed traffic with and without them, in one engine, turn about.

`python -m payloadbench.caps`. Half of the requests are greedy, half are sampled at a high temperature, whose drafts are
mostly rejected. Greedy texts must not change. Counts are exact; throughput on a CPU says nothing of an accelerator,
where verification costs otherwise: `payloadbench.caps_model` judges that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from payloadbench.load import Answers, loop, prompts
from payloadbench.server import PAYLOAD, Server, write_table
from realengine import paths

CONCURRENCY = 16
REQUESTS = 48
MAX_TOKENS = 160
_SERIES = {
    "steps": "vllm:iteration_tokens_total_count",
    "drafts": "vllm:spec_decode_num_drafts_total",
    "verified": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
    "tokens": "vllm:generation_tokens_total",
}


def speculation(method: str, k: int) -> list[str]:
    """Flags of a method under a boot schedule of that K and 0."""
    config: dict[str, Any] = {
        "method": method, "num_speculative_tokens": k,
        "num_speculative_tokens_per_batch_size": [[1, 15, k], [16, 16, 0]],
    }  # fmt: skip
    if method == "ngram":
        config |= {"prompt_lookup_min": 1, "prompt_lookup_max": 4}
    else:
        config["model"] = str(paths.models() / ("draft" if method == "draft_model" else method))
    return ["--speculative-config", json.dumps(config)]


def compare(method: str, k: int, pairs: int, seed: int) -> dict[str, Any]:
    """Totals without and with caps, and whether greedy texts are the same."""
    engine = paths.python()
    if engine is None:
        raise RuntimeError(paths.MISSING)
    with tempfile.TemporaryDirectory(prefix="payloadbench-") as temporary:
        table = Path(temporary) / "table.json"
        write_table(table, 1, [(1, 16, k)])
        variables = {
            "PYTHONPATH": str(PAYLOAD), "SPECULATIVE_TABLE_FILE": str(table), "SPECULATIVE_TELEMETRY_PORT": "off",
        }  # fmt: skip
        flags = [*speculation(method, k), "--scheduler-cls", "speculative_scheduler.scheduler"]
        with Server(engine, Path(temporary) / "engine", flags, variables) as server:
            return _compared(server, table, k, pairs, seed)


def _compared(server: Server, table: Path, k: int, pairs: int, seed: int) -> dict[str, Any]:
    totals: dict[bool, dict[str, float]] = {False: {}, True: {}}
    greedy: dict[bool, list[str]] = {False: [], True: []}
    failed = 0
    for number in range(pairs):
        asked = prompts(REQUESTS, seed + number)
        for capped in (False, True) if number % 2 == 0 else (True, False):
            write_table(table, 2 * number + capped, [(1, 16, k)], per_request=capped)
            before = _counters(server)
            answers = asyncio.run(loop(server.url, asked, CONCURRENCY, MAX_TOKENS, sampled_every=2))
            _add(totals[capped], before, _counters(server), answers)
            greedy[capped] += answers.texts[1::2]
            failed += answers.failed
    same = sum(left == right for left, right in zip(greedy[False], greedy[True], strict=True))
    return {
        "without": totals[False], "with": totals[True], "failed": failed,
        "identical_greedy": f"{same} of {len(greedy[False])}",
    }  # fmt: skip


def _add(total: dict[str, float], before: dict[str, float], after: dict[str, float], answers: Answers) -> None:
    for name, value in after.items():
        total[name] = round(total.get(name, 0.0) + value - before[name], 2)
    total["seconds"] = round(total.get("seconds", 0.0) + answers.seconds, 2)


def _counters(server: Server) -> dict[str, float]:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as answer:  # noqa: S310  (loopback)
        text = answer.read().decode()
    told = {name: _total(text, series) for name, series in _SERIES.items()}
    return {**told, "processor_seconds": server.processor_seconds()}


def _total(text: str, series: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{re.escape(series)}\{{.*\}} (\S+)$", text, re.MULTILINE))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="payloadbench.caps", description=__doc__)
    parser.add_argument("--method", choices=("ngram", "draft_model", "eagle3"), default="ngram")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    print(json.dumps(compare(options.method, options.k, options.pairs, options.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
