"""Stages within a time, and the file that keeps what they found."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from acceleratorkit import selftest
from acceleratorkit.bench import STEADY, WAVES, Arm, Group, Traffic, turns
from acceleratorkit.engines import Engine
from acceleratorkit.stages import Record, Stage, run

ARMS = (
    Arm("plain", "plain"),
    Arm("K = 0, KeepRunning", "keeps", 0),
    Arm("K = 0, Skip", "skips", 0),
    Arm("K = 3", "skips", 3),
)
ENGINES = (Engine("plain"), Engine("keeps", 2, "eagle3"), Engine("skips", 2, "eagle3", True))
GROUP = Group("speculation", ENGINES, ARMS, (Traffic(WAVES, 4, 64), Traffic(STEADY, 8, 64)))


def kept(record: Record) -> dict[str, object]:
    found: dict[str, object] = json.loads(record.path.read_text())
    return found


def states(record: Record) -> dict[str, str]:
    return {stage["name"]: stage["state"] for stage in record.found["stages"]}


def test_every_arm_has_its_turn_at_every_load(tmp_path: Path) -> None:
    record = selftest.measure(tmp_path / "x.json", [GROUP], 220.0)
    assert kept(record) == record.found
    cells = record.found["cells"]
    for round_ in (1, 2, 3):
        found = {(cell["load"], cell["arm"]) for cell in cells if cell["round"] == round_}
        assert found == {(load.kind, arm.name) for load in GROUP.traffic for arm in ARMS}
    assert {cell["k"] for cell in cells if cell["arm"] == "K = 3"} == {3.0}
    by_arm = {cell["arm"]: cell for cell in cells if cell["load"] == WAVES}
    assert by_arm["plain"]["step_ms"] == by_arm["K = 0, Skip"]["step_ms"] == 5.0
    assert by_arm["K = 0, KeepRunning"]["step_ms"] == 5.5
    assert (by_arm["K = 0, Skip"]["left_out"], by_arm["K = 0, KeepRunning"]["left_out"]) == (1.0, 0.0)
    assert by_arm["K = 3"]["tokens_per_step"] == 2.5


def test_it_ends_in_its_time(tmp_path: Path) -> None:
    for seconds in (60.0, 120.0, 220.0):
        record = selftest.measure(tmp_path / "x.json", [GROUP], seconds)
        assert record.found["stages"][0]["seconds"] <= seconds


def test_the_order_of_arms_is_turned_about() -> None:
    order = turns(ARMS[:2], GROUP.traffic[:1])
    assert [next(order)[2].name for _ in range(4)] == [ARMS[1].name, ARMS[0].name, ARMS[0].name, ARMS[1].name]


def test_an_engine_that_breaks_leaves_the_others_their_turns(tmp_path: Path) -> None:
    record = selftest.measure(tmp_path / "x.json", [GROUP], 220.0, breaks_after=40.0)
    broken = [cell for cell in record.found["cells"] if "broken" in cell]
    assert {cell["broken"] for cell in broken} == {"ConnectionError: the engine is gone"}
    assert len(broken) == len(ARMS), "each is tried once"
    assert len(record.found["cells"]) > len(broken)


def test_an_engine_that_does_not_start_is_told_and_the_others_are_measured(tmp_path: Path) -> None:
    group = Group(
        "runners", (Engine("plain"), Engine("V1", 1)), (Arm("plain", "plain"), Arm("V1", "V1")), GROUP.traffic
    )
    record = selftest.measure(tmp_path / "x.json", [group], 100.0)
    assert [engine["failed"] for engine in record.found["engines"]] == ["", "made up"]
    assert {cell["arm"] for cell in record.found["cells"]} == {"plain"}


def test_a_group_without_engines_fails_and_the_next_is_measured(tmp_path: Path) -> None:
    none = Group("runners", (Engine("V1", 1),), (Arm("V1", "V1"),), GROUP.traffic)
    record = selftest.measure(tmp_path / "x.json", [none, GROUP], 250.0)
    assert states(record) == {"runners": "failed", "speculation": "done"}


def test_a_stage_without_time_is_skipped(tmp_path: Path) -> None:
    record = selftest.measure(tmp_path / "x.json", [GROUP, Group("later", ENGINES, ARMS, GROUP.traffic)], 190.0)
    assert states(record) == {"speculation": "done", "later": "skipped"}


def test_a_stage_that_hangs_is_cut_and_the_next_runs(tmp_path: Path) -> None:
    record = Record(tmp_path / "x.json", {})
    ran: list[float] = []
    stages = [Stage("hangs", lambda until: time.sleep(30), 0.2), Stage("next", ran.append, 1.0)]
    run(stages, record, time.monotonic() + 20.0, grace=0.1)
    assert (states(record), len(ran)) == ({"hangs": "cut", "next": "done"}, 1)


def test_an_interrupt_ends_all_and_keeps_what_was_found(tmp_path: Path) -> None:
    record = Record(tmp_path / "x.json", {})

    def interrupted(until: float) -> None:
        record.add("cells", 1)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        run([Stage("one", interrupted, 5.0), Stage("two", interrupted, 5.0)], record, time.monotonic() + 9.0)
    assert kept(record)["cells"] == [1]
    assert states(record) == {"one": "cut"}


def test_a_disk_that_is_full_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = selftest.measure(tmp_path / "not there" / "x.json", [GROUP], 220.0)
    assert states(record) == {"speculation": "done"}
    assert "cannot be written" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_whole_leaves_the_one_before(tmp_path: Path) -> None:
    record = Record(tmp_path / "x.json", {"a": 1})
    record.save()
    (tmp_path / "x.json.new").mkdir()
    record.put("b", 2)
    assert kept(record) == {"a": 1}


def test_the_self_test_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert selftest.main(tmp_path) == 0
    assert "complete" in capsys.readouterr().out
