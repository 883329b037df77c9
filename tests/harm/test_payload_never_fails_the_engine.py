"""Harm: what is mounted into an engine raises into it, and every request fails, or the engine does not start."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from speculative_operator.payload import (
    speculative_blocks,
    speculative_hooks,
    speculative_port,
    speculative_scheduler,
    speculative_table,
    speculative_telemetry,
)

PARTS = (
    speculative_scheduler,
    speculative_table,
    speculative_telemetry,
    speculative_port,
    speculative_blocks,
)
ENTRIES = ("__init__", "schedule", "update_from_output", "_update_after_schedule")
BOOT = [0, 1, 1, 1, 3]


class Engine:
    """vLLM's scheduler, as far as it is looked at. It returns what nobody else could."""

    def __init__(self, vllm_config: Any) -> None:
        self.vllm_config, self.num_spec_tokens = vllm_config, 3
        self.dynamic_sd_lookup = list(BOOT)
        self.drafted = 0
        self.requests = {"a": SimpleNamespace(spec_token_ids=[1, 2, 3])}
        self.plan = SimpleNamespace(
            num_scheduled_tokens={"a": 4},
            total_num_scheduled_tokens=4,
            scheduled_spec_decode_tokens={"a": [1, 2, 3]},
            scheduled_cached_reqs=SimpleNamespace(num_output_tokens=[1]),
            num_spec_tokens_to_schedule=3,
        )
        self.outputs = {0: SimpleNamespace(outputs=[SimpleNamespace(new_token_ids=[7])], scheduler_stats=None)}

    def schedule(self) -> Any:
        self._update_after_schedule(self.plan)
        return self.plan

    def _update_after_schedule(self, plan: Any) -> None:
        self.drafted = plan.num_spec_tokens_to_schedule

    def update_from_output(self, _plan: Any, _sampled: Any) -> Any:
        return self.outputs

    def update_draft_token_ids(self, _drafts: Any) -> str:
        return "given"


class AsyncEngine(Engine):
    pass


class SchedulerConfig:
    """vLLM's, which knows its own scheduler class wherever that has moved to."""

    def __init__(self, asynchronous: bool = False) -> None:
        self.async_scheduling = asynchronous
        self.scheduler_cls: Any = "speculative_scheduler.scheduler"

    def get_scheduler_cls(self) -> Any:
        if self.scheduler_cls is not None:
            return speculative_scheduler.scheduler
        return AsyncEngine if self.async_scheduling else Engine


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    package = ModuleType("vllm")
    package.__version__ = "0.32.0"  # type: ignore[attr-defined]  # a module made here
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setattr(speculative_hooks, "missing", lambda _hooks: "")
    monkeypatch.setattr(speculative_hooks, "rehearse", lambda _meter: None)
    monkeypatch.setattr(speculative_table, "POLL_SECONDS", 0.0)
    monkeypatch.setenv("SPECULATIVE_TABLE_FILE", str(tmp_path / "table.json"))
    monkeypatch.setenv("SPECULATIVE_TELEMETRY_PORT", "off")
    write(tmp_path, 1)
    return package


def write(folder: Path, version: int, **more: Any) -> None:
    new = folder / "new"
    new.write_text(json.dumps({"version": version, "rows": [[1, 4, 1]], **more}))
    new.rename(folder / "table.json")


def start(asynchronous: bool = False) -> Any:
    config = SimpleNamespace(
        scheduler_config=SchedulerConfig(asynchronous), speculative_config=SimpleNamespace(method="ngram")
    )
    return speculative_scheduler.scheduler(vllm_config=config)


def steps(made: Any, folder: Path) -> None:
    """What vLLM calls, while tables come, with something to try and without."""
    for version, more in ((2, {}), (5, {"try": {"steps": 4, "rows": [[1, 4, [3], 0.4]]}}), (6, {})):
        write(folder, version, **more)
        for _ in range(40 if more else 1):
            step(made)


def step(made: Any) -> None:
    made.plan.scheduled_spec_decode_tokens = {"a": [7] * made.drafted}
    made.plan.num_scheduled_tokens = {"a": 1 + made.drafted}
    made.plan.total_num_scheduled_tokens = 1 + made.drafted
    made.plan.num_spec_tokens_to_schedule = made.dynamic_sd_lookup[1]
    assert made.schedule() is made.plan
    assert made.update_from_output(made.plan, SimpleNamespace(sampled_token_ids=[], req_id_to_index={})) is made.outputs
    assert made.update_draft_token_ids(SimpleNamespace(req_ids=["a"])) == "given"


def ours() -> list[tuple[Any, str]]:
    """Every function and method of the payload, with where it is looked up, but what vLLM itself calls, and what
    catches the errors of all others."""
    found: list[tuple[Any, str]] = []
    for module in PARTS:
        for name, value in vars(module).items():
            if getattr(value, "__module__", "") != module.__name__:
                continue
            if inspect.isfunction(value) and name not in ("scheduler", "_own_class", "_attempt"):
                found.append((module, name))
            if inspect.isclass(value):
                methods = (one for one, method in vars(value).items() if inspect.isfunction(method))
                hot = value is speculative_scheduler._HotTable
                found += [(value, one) for one in methods if not (hot and one in ENTRIES)]
    return found


def boom(*_: Any, **__: Any) -> Any:
    raise RuntimeError("boom")


FUNCTIONS = ours()


@pytest.mark.parametrize(("owner", "name"), FUNCTIONS, ids=lambda one: getattr(one, "__name__", one))
@pytest.mark.parametrize("when", ["from the start", "while it serves"])
def test_none_of_our_functions_can_fail_a_call_of_the_engine(
    owner: Any, name: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if when == "from the start":
        monkeypatch.setattr(owner, name, boom)
    made = start()
    assert isinstance(made, Engine)
    monkeypatch.setattr(owner, name, boom)
    steps(made, tmp_path)


def test_the_test_above_looks_at_every_part() -> None:
    names = {f"{getattr(owner, '__name__', '')}.{name}".rpartition("payload.")[2] for owner, name in FUNCTIONS}
    assert {"TableFile.poll", "Meter.finished", "Blocks.count", "_HotTable._speculative_look"} <= names
    assert "speculative_scheduler._serve" in names
    assert len(FUNCTIONS) > 50


def test_a_part_of_another_release_beside_a_running_payload_is_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files replaced below a running pod."""
    made = start()
    imported: list[str] = []
    monkeypatch.setattr("importlib.import_module", imported.append)
    steps(made, tmp_path)
    assert imported == []


def test_a_part_that_fails_is_off_with_one_warning_and_its_reason_in_the_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = start()
    monkeypatch.setattr(speculative_telemetry.Meter, "scheduling", boom)
    monkeypatch.setattr(speculative_table.TableFile, "poll", boom)
    steps(made, tmp_path)
    assert len([text for text in caplog.messages if "boom" in text]) == 2
    text = speculative_telemetry.exposition(made._speculative_state)
    for part in ("Table", "Counting"):
        assert f'speculative_payload_off{{part="{part}",reason="RuntimeError(\'boom\')"}} 1' in text
    assert 'live="false"' in text


@pytest.mark.parametrize("method", ["k_for", "count", "put_in_force"])
def test_blocks_that_fail_leave_k_to_the_table(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = start()
    monkeypatch.setattr(speculative_blocks.Blocks, method, boom)
    steps(made, tmp_path)
    assert made._speculative_state.blocks is None
    assert (made._speculative_state.file is not None, made._speculative_state.meter is not None) == (True, True)
    assert made.drafted == 1
    assert 'speculative_payload_off{part="Blocks"' in speculative_telemetry.exposition(made._speculative_state)


def test_a_k_that_is_tried_is_not_left_in_force_where_steps_are_no_longer_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = start()
    write(tmp_path, 5, **{"try": {"steps": 4, "rows": [[1, 4, [3], 0.4]]}})
    for _ in range(200):
        step(made)
        if made.drafted == 3:
            break
    assert made.drafted == 3
    monkeypatch.setattr(speculative_telemetry.Meter, "finished", boom)
    for _ in range(40):
        step(made)
    assert made.drafted == 1


def unreadable() -> Any:
    class Version:
        def __str__(self) -> str:
            raise RuntimeError("boom")

    return Version()


@pytest.mark.parametrize(
    "version",
    ["0.23.0", "", "dev", None, unreadable()],
    ids=lambda one: str(one) if isinstance(one, str | None) else "unreadable",
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_engine_that_is_not_proven_starts_with_its_own_scheduler_wherever_that_has_moved(
    vllm: ModuleType, version: Any, asynchronous: bool
) -> None:
    """No module by a name that the payload knows is there."""
    vllm.__version__ = version  # type: ignore[attr-defined]  # a module made here
    assert type(start(asynchronous)) is (AsyncEngine if asynchronous else Engine)


def test_an_engine_without_a_version_starts_with_its_own_scheduler(vllm: ModuleType) -> None:
    del vllm.__version__
    assert type(start()) is Engine


@pytest.mark.parametrize("helper", ["_serve", "_inert", "_engine_version"])
def test_nothing_on_the_way_to_the_engines_own_scheduler_can_stop_it(
    vllm: ModuleType, helper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm.__version__ = "0.23.0"  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setattr(speculative_scheduler, helper, boom)
    assert type(start()) is Engine


@pytest.mark.parametrize("part", ["_tables", "_telemetry", "_port", "_off", "_blocks"])
def test_a_missing_file_costs_its_part_alone(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculative_scheduler, part, None)
    made = start()
    steps(made, tmp_path)
    expected: Callable[[], bool] = lambda: made.dynamic_sd_lookup == [0, 1, 1, 1, 1]  # noqa: E731
    assert expected() is (part != "_tables")


def test_two_threads_that_look_never_put_an_older_table_in_place_of_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scraper's thread has parsed version 2 and has not assigned it when the engine's thread looks at version 3."""
    made = start()
    table, poll = made._speculative_state.file, speculative_table.TableFile.poll

    def slow(subject: Any) -> Any:
        found = poll(subject)
        monkeypatch.setattr(speculative_table.TableFile, "poll", poll)
        new = tmp_path / "new"
        new.write_text(json.dumps({"version": 3, "rows": [[1, 4, 3]]}))
        new.rename(tmp_path / "table.json")
        made.schedule()  # the other thread's
        return found

    monkeypatch.setattr(speculative_table.TableFile, "poll", slow)
    write(tmp_path, 2)
    made._speculative_state.look()
    made.schedule()
    assert table.table.version == 3
    assert made.dynamic_sd_lookup == [0, 3, 3, 3, 3]
    assert made._speculative_state.table[0] == 3
