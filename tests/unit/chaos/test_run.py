"""Parts of the fault run that need no cluster: kills, lies, what audit logs say, the page, the clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos import lies, page
from chaos.__main__ import PAGE
from chaos.faults import ALL, SHORT
from chaos.faults.fault import Fault
from chaos.faults.process import Kill
from chaos.judge import Check, Harm, Table, Write
from chaos.operators import ACCOUNT, CLOCK
from chaos.run import Outcome, Report
from chaos.sights import table_of, writes_of

MATRIX: lies.Matrix = [
    {"metric": {"__name__": f"vllm:{name}_total", "pod": pod}, "values": [[10.0, "1"], [15.0, "4"]]}
    for name in ("accepted_tokens", "step_seconds")
    for pod in ("auto-1", "auto-2")
]


class Victim:
    killed = 0

    def kill(self) -> None:
        self.killed += 1


@pytest.mark.parametrize(("answered", "after"), [(False, 4), (True, 5)])
def test_a_kill_comes_at_its_request_and_once(answered: bool, after: int) -> None:
    victim = Victim()
    kill = Kill(victim, 2, answered=answered, writes=True)  # type: ignore[arg-type]  # killing is all it is asked for
    asked = [("GET", False), ("GET", True), ("PATCH", False), ("PATCH", True), ("PUT", False), ("PUT", True)]
    when = []
    for request in asked:
        kill(*request)
        when.append(kill.done)
    assert when.index(True) == after
    assert victim.killed == 1


@pytest.mark.parametrize("lie", lies.ALL)
def test_every_lie_differs_from_the_truth_and_leaves_it_as_it_was(lie: lies.Lie) -> None:
    before = json.dumps(MATRIX)
    assert lie(MATRIX) != MATRIX
    assert json.dumps(MATRIX) == before


def test_a_lie_about_one_pod_leaves_the_others_alone() -> None:
    told = lies.about_pod("auto-1", lies.useless_drafts)(MATRIX)
    by_pod = {pod: [one for one in told if one["metric"]["pod"] == pod] for pod in ("auto-1", "auto-2")}
    assert by_pod["auto-2"] == [one for one in MATRIX if one["metric"]["pod"] == "auto-2"]
    assert by_pod["auto-1"] != [one for one in MATRIX if one["metric"]["pod"] == "auto-1"]


def test_answers_that_are_no_matrix_stay_as_they_are() -> None:
    for body in (b"<html>", b'{"status":"error"}', b"[]"):
        assert lies.answer_with(lies.absurd, body) == body
    answer = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": MATRIX}}).encode()
    assert b"NaN" in lies.answer_with(lies.absurd, answer)


def test_an_endless_answer_is_json_so_far() -> None:
    pieces = lies.endless()
    start = next(pieces) + next(pieces)
    assert len(json.loads(start.rstrip(b",") + b"]}}")["data"]["result"]) == 200


def test_tables_of_files_and_files_that_hold_none() -> None:
    assert table_of('{"version": 4, "rows": [[1, 64, 3]], "until": 5}') == Table(4, ((1, 64, 3),))
    assert [table_of(text) for text in (None, "", "{}", '{"version": 1}', '{"version": 1, "rows": [[1]]}')] == [
        None
    ] * 5


def test_only_changes_that_the_operator_made_count() -> None:
    what = {"namespace": "models", "resource": "services", "name": "auto"}
    event = {"verb": "patch", "user": {"username": ACCOUNT}, "responseStatus": {"code": 200}, "objectRef": what}
    others = [
        {**event, "verb": "watch"},
        {**event, "user": {"username": "admin"}},
        {**event, "responseStatus": {"code": 409}},
    ]
    assert writes_of([event, *others]) == [Write("patch", "models", "services", "auto")]


def test_the_clock_of_a_process_is_set_by_a_file_and_the_monotonic_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    file.write_text("86400")
    code = (
        "import datetime as d, time\n"
        "print(time.time(), time.time_ns() / 1e9, d.datetime.now(d.UTC).timestamp(), d.datetime.now().timestamp(),"
        " time.monotonic())"
    )
    environment = {**os.environ, "PYTHONPATH": str(CLOCK), "CHAOS_CLOCK": str(file)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    *walls, monotonic = map(float, done.stdout.split())
    assert all(86300 < wall - time.time() < 86500 for wall in walls)
    assert abs(monotonic - time.monotonic()) < 3600


def outcome(fault: type[Fault], *harms: Harm) -> Outcome:
    return Outcome(fault.name, fault is ALL[-1], list(harms), 50, 0, [0, 3], 4.0, ["Ready=False PodsNotReady"])


def first_cells(text: str) -> list[str]:
    """First cells of the rows between the marks."""
    lines = text.partition(page.BEGIN)[2].partition(page.END)[0].splitlines()
    return [line.split(" |")[0].removeprefix("| ") for line in lines if line.startswith("| ")][2:]


def test_the_page_has_a_row_for_each_fault_and_says_what_was_harmed() -> None:
    found = [outcome(fault) for fault in ALL[:-1]]
    found[1].harms.append(Harm(Check.PODS, "auto: pod auto-1 is gone"))
    report = Report(7, 30, 600.0, [*found, outcome(ALL[-1], Harm(Check.PODS, "auto: pod auto-2 is gone"))])
    text = page.page(f"before\n{page.BEGIN}\n{page.END}\nafter", report, ALL)
    assert (text.startswith("before\n"), text.endswith("\nafter")) == (True, True)
    assert first_cells(text) == [fault.name for fault in ALL]
    assert "**harm**" in text
    assert f"- {ALL[1].name}: auto: pod auto-1 is gone" in text
    assert "harm found, as it must be" in text
    assert not report.good


def test_the_page_in_the_repository_is_of_todays_faults() -> None:
    """Its table is made by `make chaos`, which takes too long to be run here."""
    text = PAGE.read_text()
    assert first_cells(text) == [fault.name for fault in ALL]
    for fault in ALL:
        assert f"| {fault.name} | {fault.does} | {fault.remedy} | " in text


def test_a_run_is_good_only_where_the_control_is_harm() -> None:
    assert Report(1, 1, 1.0, [outcome(ALL[0]), outcome(ALL[-1], Harm(Check.PODS, "x"))]).good
    assert not Report(1, 1, 1.0, [outcome(ALL[0]), outcome(ALL[-1])]).good
    assert not Report(1, 1).good


def test_every_fault_has_its_words_and_a_name_of_its_own() -> None:
    assert len({fault.name for fault in ALL}) == len(ALL)
    assert all(fault.name and fault.does and fault.remedy for fault in ALL)
    assert set(SHORT) <= set(ALL)
