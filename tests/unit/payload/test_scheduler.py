"""The mounted scheduler in a stand-in for vLLM: right base class, hot table, and inert wherever it is not at home."""

from __future__ import annotations

import itertools
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from speculative_operator.engines.vllm.plan import LIVE_PROVEN
from speculative_operator.payload import speculative_hooks as hooks
from speculative_operator.payload import speculative_off as off
from speculative_operator.payload import speculative_port as door
from speculative_operator.payload import speculative_scheduler as payload
from speculative_operator.payload import speculative_table as tables
from speculative_operator.payload import speculative_telemetry as telemetry

BOOT = [0, 1, 1, 1, 1, 1, 1, 3, 0]
"""Dense boot schedule for 8 requests: K of 1, 3 and 0 are prepared."""


class Plan:
    """vLLM's scheduler output: `batch` decoding requests without drafts."""

    def __init__(self, batch: int, k: int) -> None:
        self.batch = batch
        self.num_spec_tokens_to_schedule = k
        self.num_scheduled_tokens = {str(number): 1 for number in range(batch)}
        self.total_num_scheduled_tokens = batch
        self.scheduled_spec_decode_tokens: dict[str, list[int]] = {}
        self.scheduled_cached_reqs = SimpleNamespace(num_output_tokens=[1] * batch)

    def __eq__(self, k: object) -> bool:
        return self.num_spec_tokens_to_schedule == k

    __hash__ = None  # type: ignore[assignment]  # as vLLM's dataclass


class Scheduler:
    """What the payload relies on of vLLM's scheduler."""

    def __init__(self, vllm_config: Any, block_size: int = 16) -> None:
        self.vllm_config = vllm_config
        self.num_spec_tokens = 3
        self.requests: dict[str, object] = {}
        self.dynamic_sd_lookup = vllm_config.lookup
        self.block_size = block_size
        self.steps: list[tuple[int, dict[str, bool]]] = []

    def schedule(self, batch: int, **flags: bool) -> Plan:
        self.steps.append((batch, flags))
        return Plan(batch, int(self.dynamic_sd_lookup[batch]))

    def update_draft_token_ids(self, drafts: Any) -> None:
        """Gives the requests their drafts."""

    def update_from_output(self, plan: Plan, _sampled: object) -> dict[int, Any]:
        return {0: SimpleNamespace(outputs=[SimpleNamespace(new_token_ids=[7])] * plan.batch, scheduler_stats=None)}


class AsyncScheduler(Scheduler):
    pass


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package `vllm` with the modules that the payload imports."""
    package = ModuleType("vllm")
    package.__version__ = "0.32.0+cpu"  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "vllm", package)
    for name in ("vllm.v1", "vllm.v1.core", "vllm.v1.core.sched"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, base in (("scheduler", Scheduler), ("async_scheduler", AsyncScheduler)):
        module = ModuleType(name)
        setattr(module, base.__name__, base)
        monkeypatch.setitem(sys.modules, f"vllm.v1.core.sched.{name}", module)
    monkeypatch.setattr(hooks, "missing", lambda _hooks: "")
    monkeypatch.setattr(hooks, "rehearse", lambda _meter: None)
    monkeypatch.setattr(tables, "POLL_SECONDS", 0.0)
    monkeypatch.setenv("SPECULATIVE_TELEMETRY_PORT", "off")
    return package


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "table.json"
    monkeypatch.setenv("SPECULATIVE_TABLE_FILE", str(path))
    write(path, 1, [[1, 4, 3], [5, 8, 0]])
    return path


def write(path: Path, version: int, rows: list[list[int]]) -> None:
    new = path.with_name("new")
    new.write_text(json.dumps({"version": version, "rows": rows}))
    new.rename(path)


def start(lookup: Any = None, asynchronous: bool = False) -> Any:
    scheduler_config = SimpleNamespace(async_scheduling=asynchronous)
    lookup = BOOT if lookup is None else lookup
    speculative = SimpleNamespace(method="draft_model")
    config = SimpleNamespace(scheduler_config=scheduler_config, lookup=lookup, speculative_config=speculative)
    return payload.scheduler(vllm_config=config, block_size=32)


@pytest.mark.parametrize(("asynchronous", "base"), [(False, Scheduler), (True, AsyncScheduler)])
@pytest.mark.usefixtures("file")
def test_base_class_follows_the_configuration(asynchronous: bool, base: type) -> None:
    made = start(asynchronous=asynchronous)
    assert type(made).__mro__[2] is base
    assert isinstance(made, AsyncScheduler) is asynchronous
    assert made.block_size == 32


def test_table_is_in_force_before_the_first_step_and_changes_between_steps(file: Path) -> None:
    made = start()
    assert made.schedule(2, throttle_prefills=True) == 3, "the boot schedule says 1"
    assert made.schedule(5) == 0
    write(file, 2, [[1, 8, 1]])
    assert made.schedule(5) == 1
    assert made.steps == [(2, {"throttle_prefills": True}), (5, {}), (5, {})]
    assert len(made.dynamic_sd_lookup) == len(BOOT)


def test_no_file_leaves_the_boot_schedule(file: Path) -> None:
    file.unlink()
    made = start()
    assert made.schedule(7) == 3
    assert made.dynamic_sd_lookup is BOOT


@pytest.mark.parametrize(
    "lookup", [SimpleNamespace(dense=[0, 1]), (0, 1, 1), [[0], [1]], [0], [0, 1.5], [0, True], "abc"]
)
@pytest.mark.usefixtures("file")
def test_inert_where_the_schedule_is_absent_or_strange(lookup: Any, caplog: pytest.LogCaptureFixture) -> None:
    made = start(lookup)
    assert made.dynamic_sd_lookup is lookup
    assert made._speculative_state.file is None
    assert len(caplog.messages) == 1


@pytest.mark.usefixtures("file")
def test_inert_without_a_boot_schedule(caplog: pytest.LogCaptureFixture) -> None:
    scheduler_config = SimpleNamespace(async_scheduling=False)
    made = payload.scheduler(SimpleNamespace(scheduler_config=scheduler_config, lookup=None, speculative_config=None))
    assert made.dynamic_sd_lookup is None
    assert "runs without a schedule" in caplog.text


def test_inert_without_the_variable(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert file.exists()
    monkeypatch.delenv("SPECULATIVE_TABLE_FILE")
    assert start().schedule(2) == 1
    assert "SPECULATIVE_TABLE_FILE is not set" in caplog.text


@pytest.mark.parametrize("version", ["0.34.0", "0.34.0.dev1", "1.32.0"])
@pytest.mark.usefixtures("file")
def test_a_release_that_nobody_ran_is_live_and_says_so(
    vllm: ModuleType, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    vllm.__version__ = version  # type: ignore[attr-defined]  # a module made here
    made = start()
    assert made.schedule(2) == 3
    assert "not proven with vLLM" in caplog.text
    assert 'live="true"' in (text := telemetry.exposition(made._speculative_state))
    assert 'proven="false"' in text


@pytest.mark.parametrize("version", ["0.32.0", "0.34.0"])
@pytest.mark.usefixtures("file")
def test_without_a_hook_the_engine_starts_as_it_is_and_metrics_name_it(
    vllm: ModuleType, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = served_texts(monkeypatch)
    monkeypatch.setattr(hooks, "missing", lambda _hooks: "this vLLM's Scheduler has no schedule")
    vllm.__version__ = version  # type: ignore[attr-defined]  # a module made here
    assert type(start()) is Scheduler
    text = shown[0]()
    assert 'live="false"' in text
    assert 'reason="MissingHook"' in text
    assert 'speculative_payload_off{part="Hooks",reason="this vLLM\'s Scheduler has no schedule"} 1' in text


@pytest.mark.usefixtures("file")
def test_a_dry_plan_that_fails_is_a_missing_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> None:
        raise TypeError("boom")

    monkeypatch.setattr(hooks, "rehearse", broken)
    assert type(start()) is Scheduler


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1", "0.32.0+rhai1", "0.32.0rc1"])
@pytest.mark.usefixtures("file")
def test_proven_engines(vllm: ModuleType, version: str) -> None:
    vllm.__version__ = version  # type: ignore[attr-defined]  # a module made here
    assert start().schedule(2) == 3


@pytest.mark.usefixtures("file")
def test_the_engines_own_errors_pass_through() -> None:
    made = start()
    with pytest.raises(IndexError):
        made.schedule(99)
    with pytest.raises(TypeError):
        start().schedule()


@pytest.mark.usefixtures("file")
def test_adoption_is_logged_as_a_child_of_the_engines_logger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vllm")
    start()
    told = [text for name, _, text in caplog.record_tuples if name == "vllm.speculative_scheduler"]
    assert any(re.fullmatch(r"speculative: table version 1 in force since \S+: 1-4:3 5-8:0", text) for text in told)


def test_payload_and_adapter_agree_on_what_is_proven() -> None:
    assert hooks.PROVEN == LIVE_PROVEN


def served_texts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What gives the text of each port that is opened from now on."""
    texts: list[Any] = []
    monkeypatch.setattr(door, "serve", texts.append)
    return texts


@pytest.mark.parametrize("asynchronous", [False, True])
def test_steps_are_counted_and_the_table_acknowledged(file: Path, asynchronous: bool) -> None:
    made = start(asynchronous=asynchronous)
    state = made._speculative_state
    assert (state.file is not None, state.reason, state.engine_version) == (True, "", "0.32.0")
    assert state.scheduler == ("async" if asynchronous else "sync")
    assert state.table[0] == 1
    plan = made.schedule(2)
    made.requests = {"0": object()}
    made.update_from_output(plan, None)
    assert {key: cell[0] for key, cell in state.meter.cells.items()} == {(0, 2): 1}
    write(file, 2, [[1, 8, 1]])
    state.look()
    assert state.table[0] == 2, "an engine without requests acknowledges too"
    assert made.dynamic_sd_lookup == [0] + [1] * 8


@pytest.mark.usefixtures("file")
def test_labels_of_k_are_those_prepared_at_start() -> None:
    """Not those of the table in force, which may hold fewer."""
    assert start()._speculative_state.meter._label == [0, 1, 3, 3]


@pytest.mark.usefixtures("file")
def test_an_engine_without_a_schedule_is_counted_and_not_live() -> None:
    made = start(lookup=(0, 1, 1))
    state = made._speculative_state
    assert (state.file, state.reason, state.table) == (None, "UnknownSchedule", None)
    plan = made.schedule(1)
    made.update_from_output(plan, None)
    assert list(state.meter.cells) == [(0, 1)]


@pytest.mark.usefixtures("file")
def test_an_engine_that_is_not_proven_says_so_and_is_not_counted(
    vllm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm.__version__ = "0.23.1"  # type: ignore[attr-defined]  # a module made here
    shown = served_texts(monkeypatch)
    assert type(start()) is Scheduler
    (text,) = (one() for one in shown)
    for told in ('live="false"', 'engine_version="0.23.1"', 'scheduler="none"', 'reason="EngineVersion"'):
        assert told in text
    assert "steps_total" not in text


@pytest.mark.parametrize("problem", [ImportError("no file"), SyntaxError("half a file")])
def test_a_part_that_cannot_be_imported_is_none_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, problem: Exception
) -> None:
    def absent(_: str) -> None:
        raise problem

    with monkeypatch.context() as change:
        change.setattr("importlib.import_module", absent)
        assert payload._sibling("speculative_telemetry") is None
    assert "speculative_telemetry cannot be used" in caplog.text


class Request:
    """What vLLM keeps of a request."""

    def __init__(self, prompt: int) -> None:
        self.num_tokens, self.num_computed_tokens, self.num_output_placeholders = prompt, 0, 0
        self.drafts = False


class Stepping(Scheduler):
    """Prompts in chunks of ten tokens, then a token and its drafts each step."""

    def __init__(self, vllm_config: Any, block_size: int = 16) -> None:
        super().__init__(vllm_config, block_size)
        self.drafted = 0

    def schedule(self) -> Any:  # type: ignore[override]  # the tests above ask for a number of requests
        waiting = {name: one.num_tokens - one.num_computed_tokens for name, one in self.made().items()}
        drafts = {name: [-1] * self.drafted for name, left in waiting.items() if left == 1 and self.made()[name].drafts}
        plan = SimpleNamespace(
            num_scheduled_tokens={n: min(left, 10) + len(drafts.get(n, ())) for n, left in waiting.items()},
            scheduled_spec_decode_tokens=drafts,
            scheduled_cached_reqs=SimpleNamespace(num_output_tokens=[1] * len(drafts)),
            num_spec_tokens_to_schedule=self.dynamic_sd_lookup[len(waiting)],
        )
        plan.total_num_scheduled_tokens = sum(plan.num_scheduled_tokens.values())
        self._update_after_schedule(plan)
        return plan

    def made(self) -> dict[str, Any]:
        return self.requests

    def _update_after_schedule(self, plan: Any) -> None:
        self.drafted = plan.num_spec_tokens_to_schedule
        for name, count in plan.num_scheduled_tokens.items():
            one = self.made()[name]
            one.num_computed_tokens += count
            one.drafts = one.num_computed_tokens >= one.num_tokens

    def update_from_output(self, plan: Any, _sampled: object) -> dict[int, Any]:
        outputs = []
        for one in self.made().values():
            if one.drafts:
                one.num_tokens += 1
                one.num_computed_tokens = one.num_tokens - 1
                outputs.append(SimpleNamespace(new_token_ids=[7]))
        return {0: SimpleNamespace(outputs=outputs, scheduler_stats=None)}


@pytest.fixture
def stepping(monkeypatch: pytest.MonkeyPatch, file: Path) -> Any:
    monkeypatch.setattr(sys.modules["vllm.v1.core.sched.scheduler"], "Scheduler", Stepping)
    return file


def drafted(made: Any, steps: int) -> list[int]:
    ks = []
    for _ in range(steps):
        plan = made.schedule()
        ks.append(made.drafted)
        made.update_from_output(plan, None)
    return ks


def test_prompts_that_join_change_no_k_before_they_decode(stepping: Path) -> None:
    """Four decode, K 3 up to there; a prompt of nine chunks joins them. By scheduled requests K would be 0 at once."""
    assert stepping.exists()
    made = start()
    made.requests = {str(number): Request(1) for number in range(4)}
    assert drafted(made, 3) == [3] * 3
    made.requests["prompt"] = Request(85)
    assert drafted(made, 8) == [3] * 8
    assert made._speculative_decoding == 4
    assert drafted(made, 1) == [3], "its last chunk: it decodes, one beyond the row"
    assert made._speculative_decoding == 5
    assert drafted(made, 8)[-1] == 0, "and stays"


def test_what_the_file_says_may_be_tried_is_tried_and_compared(stepping: Path) -> None:
    stepping.write_text(
        json.dumps({"version": 5, "rows": [[1, 8, 3]], "try": {"steps": 4, "rows": [[1, 8, [1], 0.4]]}})
    )
    made = start()
    moments = itertools.count()
    made._speculative_state.meter.clock = lambda: float(next(moments))  # steps of this machine may take any time
    made.requests = {str(number): Request(1) for number in range(2)}
    ks = drafted(made, 200)
    assert set(ks) == {1, 3}
    ((key, (blocks, *_)),) = made._speculative_state.blocks.comparisons.items()
    assert key == (1, 3, 1, 8)
    assert blocks > 2
    assert "speculative_payload_tried_blocks_total" in telemetry.exposition(made._speculative_state)
    write(stepping, 6, [[1, 8, 3]])
    assert set(drafted(made, 50)) == {3}


def test_steps_in_which_the_drafter_catches_up_are_counted_by_the_meter_alone(
    stepping: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the worker tells with a step's output is what its block is told of that step."""
    monkeypatch.setenv(off.VARIABLE, "2")
    write(stepping, 1, [[1, 8, 3]])
    made = start()
    seen: list[bool] = []
    monkeypatch.setattr(made._speculative_state.blocks, "count", lambda *step: seen.append(step[6]))
    made.requests = {"0": Request(1)}
    for missing, behind in ((0, False), (1, True), (1, False)):
        made.update_from_output(made.schedule(), SimpleNamespace(speculative_off=(0, "", missing, behind)))
    made._speculative_state.latch.behind = True
    made.update_from_output(made.schedule(), SimpleNamespace(speculative_off=(0, "an error", 1, True)))
    assert seen == [False, True, False, False], "where off has ended, steps count as ever"
    assert sum(cell[0] for cell in made._speculative_state.meter.cells.values()) == 4


def test_a_drafter_that_no_longer_rests_is_not_waited_for(
    stepping: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker refuses while the drafter rests: K comes back with the load as where nothing was ever left out."""
    monkeypatch.setenv(off.VARIABLE, "2")
    write(stepping, 1, [[1, 4, 3], [5, 8, 0]])
    made = start()
    made.requests = {str(number): Request(1) for number in range(7)}
    assert drafted(made, 4) == [0] * 4
    assert made._speculative_state.blocks.resting
    refusing = SimpleNamespace(speculative_off=(2, "an error", None, False))
    made.update_from_output(made.schedule(), refusing)
    made.requests = {str(number): Request(1) for number in range(4)}
    assert drafted(made, 9)[-1] == 3
    assert "an error" in caplog.text


def test_drafts_of_requests_that_lived_through_off_are_told(stepping: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(off.VARIABLE, "2")
    write(stepping, 1, [[1, 4, 3], [5, 8, 0]])
    made = start()
    made.requests = {str(number): Request(1) for number in range(7)}
    drafted(made, 6)
    made.requests = {name: one for name, one in made.requests.items() if int(name) < 2}
    assert drafted(made, 2)[-1] == 3
    made.requests["new"] = Request(1)
    plan = made.schedule()
    plan.scheduled_spec_decode_tokens = {"0": [7, 7, 7], "new": [7, 7, 7]}
    output = SimpleNamespace(
        sampled_token_ids=[[5, 5], [5], [5]],
        req_id_to_index={"0": 0, "1": 1, "new": 2},
        speculative_off=(5, "", None, False),
    )
    made.update_from_output(plan, output)
    text = telemetry.exposition(made._speculative_state)
    assert "speculative_payload_drafter_rested_steps_total 5\n" in text
    assert 'speculative_payload_gapped_drafted_tokens_total{age="32"} 3\n' in text
    assert 'speculative_payload_gapped_accepted_tokens_total{age="32"} 1\n' in text
    assert 'speculative_payload_gapped_accepted_tokens_total{age="+Inf"} 0\n' in text


def test_a_release_without_the_hook_looks_k_up_by_scheduled_requests(file: Path) -> None:
    assert file.exists()
    made = start()
    assert made._speculative_state.blocks is None
    assert made.schedule(5) == 0
