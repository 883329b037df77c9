"""`--scheduler-cls`: resolved as vLLM resolves it; the payload itself reads tables and counts steps."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.emulator.building import V1, Run, configured, quiet, speculation

from speculative_lab.emulator.config import EngineConfig
from speculative_lab.emulator.core import StepResult
from speculative_lab.emulator.errors import LateError
from speculative_lab.emulator.hot import HotStepper, hot_stepper, stand_ins

PAYLOAD = Path(__file__).parents[3] / "operator" / "speculative_operator" / "payload"
NAME = "speculative_scheduler.scheduler"
BOOT = [[1, 14, 3], [15, 15, 1], [16, 16, 0]]


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The payload where a pod has it, on the path; its table file beside it; nothing is served."""
    for file in PAYLOAD.glob("speculative_*.py"):
        shutil.copy(file, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SPECULATIVE_TABLE_FILE", str(tmp_path / "table.json"))
    monkeypatch.setenv("SPECULATIVE_TELEMETRY_PORT", "off")
    yield tmp_path / "table.json"
    for name in (*stand_ins(), *(file.stem for file in PAYLOAD.glob("speculative_*.py"))):
        sys.modules.pop(name, None)


def write(path: Path, version: int, rows: list[list[int]]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"version": version, "rows": rows}))
    fresh.replace(path)


def config(*flags: str, schedule: list[list[int]] | None = BOOT, name: str = NAME, **more: Any) -> EngineConfig:
    environment = {} if "--worker-extension-cls" in flags else V1
    words = ("--max-num-seqs", "16", "--scheduler-cls", name, *flags, *speculation(3, schedule, **more))
    return configured(*words, environment=environment)


class HotRun(Run):
    """A run whose steps go through the payload."""

    def __init__(self, configuration: EngineConfig) -> None:
        super().__init__(configuration, quiet())
        found = hot_stepper(configuration, self.core)
        assert found is not None
        self.hot: HotStepper = found

    def hot_steps(self, count: int) -> list[StepResult]:
        found = []
        for _ in range(count):
            result = self.hot.step(self.now)
            self.now = result.end
            self.hot.finished(result)
            self.metrics.record(result, 0, 0, 0.0)
            found.append(result)
        return found

    @property
    def payload(self) -> Any:
        return self.hot._scheduler


def test_the_table_of_the_file_comes_into_force(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(mounted, 4, [[1, 8, 1], [9, 16, 0]])
    run = HotRun(config())
    run.add(output=50)
    assert {result.k for result in run.hot_steps(5)} == {1}
    monkeypatch.setattr(sys.modules["speculative_table"], "POLL_SECONDS", 0.0)
    run.payload._speculative_state.file._next = 0.0
    write(mounted, 5, [[1, 16, 3]])
    assert {result.k for result in run.hot_steps(5)} == {3}
    assert run.payload._speculative_state.table[0] == 5


@pytest.mark.parametrize("rows", [[[1, 16, 2]], [[1, 16, 4]], [[2, 16, 1]]], ids=["not at boot", "above", "gap"])
def test_tables_that_are_refused(mounted: Path, rows: list[list[int]]) -> None:
    write(mounted, 1, rows)
    run = HotRun(config())
    run.add(output=50)
    assert {result.k for result in run.hot_steps(5)} == {3}
    assert run.payload._speculative_state.table is None


def test_steps_are_counted_by_the_payload(mounted: Path) -> None:
    """What it counts is what vLLM's own counters and the step results tell."""
    write(mounted, 1, [[1, 4, 3], [5, 16, 1]])
    run = HotRun(config())
    for index in range(6):
        run.add(prompt=30, output=20 + 5 * index)
    results = run.hot_steps(60)
    cells, positions = run.payload._speculative_state.meter.cells, run.payload._speculative_state.meter.positions
    with_output = [result for result in results if result.has_output]
    assert sum(cell[0] for cell in cells.values()) == len(with_output)
    assert sum(cell[2] for cell in cells.values()) == sum(result.scheduled for result in with_output)
    assert sum(cell[3] for cell in cells.values()) == run.count("generation_tokens")
    assert sum(cell[4] for cell in cells.values()) == run.count("prompt_tokens") == 180
    seconds = sum(result.seconds for result in with_output)
    assert sum(cell[1] for cell in cells.values()) == pytest.approx(seconds)
    assert {k for k, _ in cells} == {0, 1, 3}, "the first step verified nothing"
    drafted = sum(sum(counts[0]) for counts in positions.values())
    accepted = sum(sum(counts[1]) for counts in positions.values())
    assert drafted == run.count("spec_decode_num_draft_tokens")
    assert accepted == run.count("spec_decode_num_accepted_tokens")
    assert positions[1][0][1:] == (0, 0)


def test_what_may_be_tried_is_tried_at_its_own_price(mounted: Path) -> None:
    """Steps at a tried K draft and verify as many tokens, and take the time of that K."""
    mounted.write_text(
        json.dumps({"version": 2, "rows": [[1, 16, 3]], "try": {"steps": 8, "rows": [[2, 6, [1], 0.4]]}})
    )
    run = HotRun(config())
    for _ in range(4):
        run.add(output=400)
    results = [result for result in run.hot_steps(300) if result.decoded == 4]
    seconds = {k: [r.seconds for r in results if r.k == k and r.draft_tokens == 4 * k] for k in (1, 3)}
    assert len(seconds[1]) > 30
    assert max(seconds[1]) < min(seconds[3])
    ((key, (blocks, tried, beside, *_)),) = run.payload._speculative_state.blocks.comparisons.items()
    assert (key, tried[0], beside[0]) == ((1, 3, 2, 6), 8 * blocks, 16 * blocks)
    assert tried[1] / tried[0] == pytest.approx(sum(seconds[1]) / len(seconds[1]), rel=0.05)
    assert beside[1] / beside[0] == pytest.approx(sum(seconds[3]) / len(seconds[3]), rel=0.05)


def test_prompts_in_chunks_change_no_k(mounted: Path) -> None:
    """Two decode; a prompt of three chunks joins. K is looked up by the requests that decode."""
    write(mounted, 2, [[1, 2, 3], [3, 16, 0]])
    run = HotRun(config("--max-num-batched-tokens", "64"))
    for _ in range(2):
        run.add(prompt=8, output=100)
    run.hot_steps(3)
    run.add(prompt=150, output=1)
    results = run.hot_steps(5)
    assert [result.scheduled for result in results] == [3, 3, 3, 2, 2]
    assert {result.k for result in results} == {3}


def test_what_is_exported(mounted: Path) -> None:
    write(mounted, 7, [[1, 16, 3]])
    run = HotRun(config())
    run.add(output=10)
    run.hot_steps(4)
    telemetry = sys.modules["speculative_telemetry"]
    text = telemetry.exposition(run.payload._speculative_state)
    (info,) = (line for line in text.splitlines() if line.startswith("speculative_payload_info{"))
    for label in ('live="true"', 'engine_version="0.32.0"', 'scheduler="async"', 'reason=""'):
        assert label in info
    assert "speculative_payload_table_version 7" in text
    assert 'speculative_payload_steps_total{k="3",batch="1"}' in text


@pytest.mark.parametrize(
    ("flags", "method", "expected"),
    [((), "ngram", "sync"), (("--no-async-scheduling",), "eagle3", "sync"), ((), "eagle3", "async")],
)
def test_which_scheduler_it_is(mounted: Path, flags: tuple[str, ...], method: str, expected: str) -> None:
    run = HotRun(config(*flags, method=method))
    assert run.payload._speculative_state.scheduler == expected


def test_inert_without_schedule(mounted: Path) -> None:
    run = HotRun(config(schedule=None))
    state = run.payload._speculative_state
    assert (state.file, state.reason) == (None, "NoSchedule")
    run.add(output=10)
    assert {result.k for result in run.hot_steps(3)} == {3}


def test_no_scheduler_no_payload() -> None:
    plain = configured(*speculation(3, BOOT))
    assert hot_stepper(plain, Run(plain).core) is None


def test_a_name_that_does_not_import_is_fatal(mounted: Path) -> None:
    for name in ("no_such_module.scheduler", "json.no_such_attribute", "scheduler", "..x"):
        wrong = config(name=name)
        with pytest.raises(LateError, match="--scheduler-cls"):
            hot_stepper(wrong, Run(wrong).core)


def test_another_scheduler_is_not_emulated(mounted: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = config(name="json.JSONDecoder")
    assert hot_stepper(other, Run(other).core) is None
    assert "the stock scheduler runs in its place" in caplog.text


class TestOff:
    """`--worker-extension-cls` and $SPECULATIVE_OFF_STEPS: the drafter's pass is left out while K = 0 lasts."""

    WORKER = ("--worker-extension-cls", "speculative_worker.Extension")

    @staticmethod
    def served(mounted: Path, monkeypatch: pytest.MonkeyPatch, *flags: str) -> HotRun:
        monkeypatch.setenv("SPECULATIVE_OFF_STEPS", "8")
        write(mounted, 1, [[1, 16, 0]])
        run = HotRun(config(*flags))
        for _ in range(4):
            run.add(output=400)
        return run

    def test_a_step_without_the_drafter_is_shorter(self, mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = self.served(mounted, monkeypatch, *self.WORKER)
        results = run.hot_steps(40)
        soft, off = results[6], results[20]
        assert off.seconds < 0.95 * soft.seconds
        assert off.generated_tokens == soft.generated_tokens == 4
        assert run.payload._speculative_state.latch.off
        assert run.payload._speculative_state.latch.rested == run.core.rested > 25

    def test_k_0_that_is_tried_is_off_at_once(self, mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPECULATIVE_OFF_STEPS", "8")
        trying = {"steps": 8, "rows": [[1, 16, [0], 0.2]]}
        mounted.write_text(json.dumps({"version": 1, "rows": [[1, 16, 3]], "try": trying}))
        run = HotRun(config(*self.WORKER))
        for _ in range(4):
            run.add(output=4000)
        ks = [result.k for result in run.hot_steps(400)]
        assert 3 in ks
        told = run.payload._speculative_state.latch.steps
        assert 10 < run.core.rested < told, "the first step of a block verifies what was drafted before it"
        assert told == ks.count(0)
        assert not run.payload._speculative_state.latch.gapped

    def test_a_draft_model_misses_prompts_too_and_catches_up_once(
        self, mounted: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = self.served(mounted, monkeypatch, *self.WORKER)
        run.hot_steps(20)
        rested = run.core.rested
        run.add(prompt=3000, output=50)
        run.hot_steps(3)
        assert run.core.rested == rested + 3
        assert run.core.behind == run.payload._speculative_state.latch.missing == 5
        monkeypatch.setattr(sys.modules["speculative_table"], "POLL_SECONDS", 0.0)
        run.payload._speculative_state.file._next = 0.0
        write(mounted, 2, [[1, 16, 3]])
        returned = run.hot_steps(1)
        assert run.core.behind == 1, "more than one pass of 2,048 tokens"
        returned += run.hot_steps(3)
        assert run.core.behind == 0
        assert returned[0].seconds > 1.2 * returned[-1].seconds
        assert run.payload._speculative_state.latch.gaps == 0

    @pytest.mark.parametrize("requests", [48, 100])
    def test_a_trial_while_off_tells_what_drafts_will_bring(
        self, requests: int, mounted: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """At high load the drafter catches up for longer than a block lasts. A comparison that counts these steps has
        K = 1 10 and 14 % slower than off, where it is 12 and 7 % faster in steps without prompts."""
        monkeypatch.setenv("SPECULATIVE_OFF_STEPS", "64")
        tries = {"steps": 8, "rows": [[1, 256, [1], 0.2]]}
        speeds = {}
        for k in (0, 1):
            results = self.loaded(mounted, {"version": 1, "rows": [[1, 256, k]]}, requests, 1500).results[300:]
            plain = [result for result in results if result.decoded and not result.prefill_tokens]
            seconds = sum(result.seconds for result in plain) / len(plain)
            tokens = sum(result.generated_tokens for result in results) / sum(result.scheduled for result in results)
            speeds[k] = math.log(tokens / seconds)
        run = self.loaded(mounted, {"version": 1, "rows": [[1, 256, 0]], "try": tries}, requests, 6000)
        ((key, (blocks, tried, beside, *_)),) = run.payload._speculative_state.blocks.comparisons.items()
        assert key == (1, 0, 1, 256)
        told = [math.log(side[4] / side[2] / (side[6] / side[5])) for side in (tried, beside)]
        assert told[0] - told[1] == pytest.approx(speeds[1] - speeds[0], abs=0.025)
        assert blocks >= 8
        assert sum(result.behind for result in run.results) > 12 * blocks, "longer than a block"

    @staticmethod
    def loaded(mounted: Path, table: dict[str, Any], requests: int, steps: int) -> HotRun:
        """A run of steps with so many requests of 1,000 tokens at a time."""
        mounted.write_text(json.dumps(table))
        schedule = [[1, 254, 3], [255, 255, 1], [256, 256, 0]]
        run = HotRun(config(*TestOff.WORKER, "--max-num-seqs", "256", schedule=schedule))
        lengths = np.random.default_rng(3)
        for _ in range(requests):
            run.add(1000, int(lengths.integers(1, 201)))
        for _ in range(steps):
            (result,) = run.hot_steps(1)
            run.results.append(result)
            for _ in result.finished:
                run.add(1000, int(lengths.integers(100, 300)))
        return run

    def test_other_drafters_see_every_prompt(self, mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPECULATIVE_OFF_STEPS", "8")
        write(mounted, 1, [[1, 16, 0]])
        run = HotRun(config(*self.WORKER, method="eagle3", model="RedHatAI/Qwen3-8B-speculator.eagle3"))
        run.add(output=400)
        run.hot_steps(20)
        rested = run.core.rested
        run.add(prompt=30, output=50)
        run.hot_steps(1)
        assert run.core.rested == rested
        run.hot_steps(1)
        assert run.core.rested == rested + 1
        assert run.core.behind is None

    def test_without_the_worker_nothing_is_left_out(self, mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = self.served(mounted, monkeypatch)
        results = run.hot_steps(40)
        assert results[20].seconds == pytest.approx(results[6].seconds, rel=0.02)
        assert run.core.rested == 0
