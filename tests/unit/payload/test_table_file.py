"""The table file: what is taken, what is refused, how seldom it is looked at, and that nothing ever raises."""

from __future__ import annotations

import ast
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.domain.table import KTable
from speculative_operator.payload import FILES
from speculative_operator.payload import speculative_table as payload
from speculative_operator.payload.speculative_table import BadTableError, TableFile, parse

ALLOWED = (0, 1, 3, 7)
NAME = "vllm.speculative_scheduler"


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "table.json"


def table(path: Path, clock: Clock, max_batch: int = 8) -> TableFile:
    return TableFile(str(path), ALLOWED, max_batch, clock, wall=lambda: 1_800_000_000.25)


def write(path: Path, version: int, *rows: list[int]) -> None:
    replace(path, json.dumps({"version": version, "rows": rows}))


def replace(path: Path, text: str) -> None:
    """As the kubelet does: a new file takes the name."""
    new = path.with_name("new")
    new.write_text(text)
    new.rename(path)


def tried(tries: str) -> str:
    return f'{{"version": 1, "rows": [[1, 8, 1]], "try": {tries}}}'


def look(subject: TableFile, clock: Clock) -> list[int] | None:
    clock.now += 1
    found = subject.poll()
    return found.dense if found is not None else None


def test_a_new_table_is_given_once(file: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, NAME)
    subject = table(file, clock)
    write(file, 3, [1, 4, 3], [5, 8, 0])
    assert look(subject, clock) == [0, 3, 3, 3, 3, 0, 0, 0, 0]
    assert subject.table is not None
    assert (subject.table.version, subject.table.rows) == (3, [(1, 4, 3), (5, 8, 0)])
    assert look(subject, clock) is None
    assert caplog.messages == ["speculative: table version 3 in force since 2027-01-15T08:00:00.250+00:00: 1-4:3 5-8:0"]
    write(file, 4, [1, 8, 1])
    assert look(subject, clock) == [0] + [1] * 8
    write(file, 4, [1, 8, 1])
    assert look(subject, clock) is None, "the same content in a new file is no change"
    assert len(caplog.messages) == 2


def test_the_file_is_looked_at_five_times_a_second_at_most(
    file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    stat = os.stat

    def counting(*args: Any, **kwargs: Any) -> os.stat_result:
        nonlocal looks
        looks += 1
        return stat(*args, **kwargs)

    write(file, 1, [1, 8, 1])
    subject = table(file, clock)
    monkeypatch.setattr(os, "stat", counting)
    for _ in range(1000):
        clock.now += 0.001
        subject.poll()
    assert 4 <= looks <= 6


def test_a_configmap_that_swaps_its_link_is_seen(tmp_path: Path, clock: Clock) -> None:
    for name, k in (("one", 1), ("two", 3)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "table.json", 1, [1, 8, k])
        os.utime(tmp_path / name / "table.json", ns=(5, 5))
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "table.json").symlink_to("..data/table.json")
    subject = table(tmp_path / "table.json", clock)
    assert look(subject, clock) == [0] + [1] * 8
    (tmp_path / "..new").symlink_to("two")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert look(subject, clock) == [0] + [3] * 8, "same size and time, another inode"


def test_a_bad_table_changes_nothing_and_warns_once(file: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    subject = table(file, clock)
    write(file, 1, [1, 8, 3])
    assert look(subject, clock) is not None
    for _ in range(3):
        write(file, 2, [1, 8, 5])
        assert look(subject, clock) is None
    assert subject.table is not None
    assert subject.table.version == 1
    (warning,) = caplog.messages
    assert "K 5 was not prepared at start; those are [0, 1, 3, 7]" in warning
    assert "table version 1 stays in force" in warning
    replace(file, "{")
    assert look(subject, clock) is None
    assert len(caplog.messages) == 2
    write(file, 3, [1, 8, 7])
    assert look(subject, clock) == [0] + [7] * 8


def test_an_absent_file_warns_once_and_is_found_later(
    file: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    subject = table(file, clock)
    assert [look(subject, clock) for _ in range(3)] == [None] * 3
    assert len(caplog.messages) == 1
    assert "the table of the start stays in force" in caplog.messages[0]
    write(file, 1, [1, 8, 1])
    assert look(subject, clock) is not None


def test_what_may_be_tried(file: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, NAME)
    subject = table(file, clock)
    replace(file, tried('{"steps": 16, "rows": [[1, 1, [0], 0.4], [5, 99, [3, 7], 0.05]]}'))
    assert look(subject, clock) is not None
    assert subject.table is not None
    assert (subject.table.steps, subject.table.tries) == (16, [(1, 1, [0], 0.4), (5, 99, [3, 7], 0.05)])
    assert caplog.messages[0].endswith(": 1-8:1, tries 1-1:0 5-99:3,7")
    replace(file, tried('{"steps": 16, "rows": []}'))
    assert look(subject, clock) is not None, "the same rows with nothing to try are another table"
    assert subject.table.tries == []


def test_huge_files_and_strange_things_are_refused(tmp_path: Path, clock: Clock) -> None:
    assert look(table(tmp_path, clock), clock) is None, "a folder"
    (tmp_path / "big").write_bytes(b" " * (payload.LARGEST_FILE + 1))
    assert look(table(tmp_path / "big", clock), clock) is None
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    assert look(table(tmp_path / "binary", clock), clock) is None
    (tmp_path / "deep").write_text("[" * 100_000)
    assert look(table(tmp_path / "deep", clock), clock) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON"),
        ("[]", "must be"),
        ("null", "must be"),
        ('{"rows": [[1, 8, 1]]}', "must be"),
        ('{"version": -1, "rows": [[1, 8, 1]]}', "must be"),
        ('{"version": true, "rows": [[1, 8, 1]]}', "must be"),
        ('{"version": 1.0, "rows": [[1, 8, 1]]}', "must be"),
        ('{"version": 1, "rows": []}', "must be"),
        ('{"version": 1, "rows": {}}', "must be"),
        ('{"version": 1, "rows": [1]}', "three whole numbers"),
        ('{"version": 1, "rows": [[1, 8]]}', "three whole numbers"),
        ('{"version": 1, "rows": [[1, 8, 1.0]]}', "three whole numbers"),
        ('{"version": 1, "rows": [[1, 8, true]]}', "three whole numbers"),
        ('{"version": 1, "rows": [[1, 8, NaN]]}', "three whole numbers"),
        ('{"version": 1, "rows": [[2, 8, 1]]}', "start at 1"),
        ('{"version": 1, "rows": [[1, 0, 1]]}', "start at 1"),
        ('{"version": 1, "rows": [[1, 4, 1], [6, 8, 0]]}', "start at 5"),
        ('{"version": 1, "rows": [[1, 4, 1], [4, 8, 0]]}', "start at 5"),
        ('{"version": 1, "rows": [[1, 8, 2]]}', "K 2 was not prepared"),
        ('{"version": 1, "rows": [[1, 8, -1]]}', "K -1 was not prepared"),
        ('{"version": 1, "rows": [[1, 8, 8]]}', "K 8 was not prepared"),
        ('{"version": 1, "rows": [[1, 8, [0, 1], 0.2]]}', "three whole numbers"),
        ('{"version": 1, "rows": [[1, 8, 1]], "explore": 0.1}', "'explore', which is not known here"),
        ('{"version": 1, "rows": [[1, 8, 1]], "trial": {}}', "'trial', which is not known here"),
        (tried("[]"), '"try" must be {"steps": N'),
        (tried('{"steps": 2, "rows": []}'), "steps 2 must be a whole number from 4 to 256"),
        (tried('{"steps": 8, "rows": [], "k": 1}'), "\"try\" has 'k', which is not known here"),
        (tried('{"steps": 8, "rows": [[1, 8, [1]]]}'), "must be \\[first, last, \\[K, ...\\], share\\]"),
        (tried('{"steps": 8, "rows": [[0, 8, [1], 0.1]]}'), "must start at 1 or above"),
        (tried('{"steps": 8, "rows": [[1, 8, [1, 1], 0.1]]}'), "must be a list of different K"),
        (tried('{"steps": 8, "rows": [[1, 8, [2], 0.1]]}'), "those are \\[0, 1, 3, 7\\]"),
        (tried('{"steps": 8, "rows": [[1, 8, [1], 0.5]]}'), "share 0.5 must be above 0 and at most 0.4"),
        (tried('{"steps": 8, "rows": [[1, 4, [1], 0.1], [4, 8, [1], 0.1]]}'), "must start after 4"),
    ],
)
def test_refused(text: str, says: str) -> None:
    with pytest.raises(BadTableError, match=says):
        parse(text, ALLOWED, 8)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists))
def test_any_json_is_taken_or_refused(rows: Any) -> None:
    try:
        found = parse(json.dumps({"version": 1, "rows": rows}), ALLOWED, 8)
    except BadTableError:
        return
    assert found.rows
    assert len(found.dense) == 9


@given(st.lists(st.sampled_from(ALLOWED), min_size=1, max_size=40), st.integers(1, 40))
def test_dense_form_is_the_tables(ks: list[int], max_batch: int) -> None:
    ours = KTable.from_dense(ks)
    found = parse(json.dumps({"version": 0, "rows": ours.rows()}), ALLOWED, max_batch)
    assert found.dense == [0, *ours.resize(max_batch).dense()]


def test_a_row_to_the_end_of_numbers_costs_nothing() -> None:
    assert parse('{"version": 1, "rows": [[1, 1000000000000000000000, 3]]}', ALLOWED, 4).dense == [0, 3, 3, 3, 3]


@pytest.mark.parametrize("name", FILES)
def test_the_files_stand_alone(name: str) -> None:
    """They are mounted without this project, into images with their own Python."""
    text = Path(payload.__file__).with_name(name).read_text()
    tree = ast.parse(text, feature_version=(3, 10))
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in top if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= {"__future__", *sys.stdlib_module_names}
    assert "speculative_operator" not in text


def test_every_file_is_named_and_every_name_is_a_file() -> None:
    folder = Path(payload.__file__).parent
    assert {path.name for path in folder.glob("*.py")} == {"__init__.py", *FILES}


# -- a table that ends


class Held:
    """A file whose table of K = 0 ends, and the table before it."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self.file, self.clock, self.wall = file, clock, 1_800_000_000.0
        self.subject = TableFile(str(file), ALLOWED, 8, clock, wall=lambda: self.wall)

    def write(self, until: object) -> None:
        replace(self.file, json.dumps({"version": 0, "rows": [[1, 8, 0]], "until": until}))

    def look(self) -> list[int] | None:
        return look(self.subject, self.clock)


@pytest.fixture
def held(file: Path, clock: Clock) -> Held:
    found = Held(file, clock)
    write(file, 7, [1, 8, 3])
    found.look()
    return found


def test_the_table_before_comes_back_though_nobody_writes_it(held: Held) -> None:
    held.write(held.wall + 60.0)
    assert held.look() == [0] + [0] * 8
    held.wall += 59.0
    assert held.look() is None
    held.write(held.wall + 60.0)  # longer
    assert held.look() == [0] * 9
    held.wall += 61.0
    assert held.look() == [0] + [3] * 8
    assert held.subject.table is not None
    assert (held.subject.table.version, held.subject.table.until) == (7, 0.0)
    assert held.look() is None
    write(held.file, 8, [1, 8, 1])
    assert held.look() == [0] + [1] * 8


def test_the_next_table_ends_it_early(held: Held) -> None:
    held.write(held.wall + 60.0)
    held.look()
    write(held.file, 7, [1, 8, 3])
    assert held.look() == [0] + [3] * 8
    held.wall += 61.0
    assert held.look() is None


@pytest.mark.parametrize("until", ["past", "far", "soon", True, None, -5, 1e300])
def test_an_end_that_cannot_be_leaves_the_table(held: Held, until: object, caplog: pytest.LogCaptureFixture) -> None:
    held.write({"past": held.wall - 1.0, "far": held.wall + 1e6}.get(str(until), until))
    assert held.look() is None
    assert held.subject.table is not None
    assert held.subject.table.version == 7
    assert "until" in caplog.text


def test_an_engine_that_starts_meanwhile_keeps_the_table_of_its_start(file: Path, clock: Clock) -> None:
    """It would have none to go back to."""
    held = Held(file, clock)
    held.write(held.wall + 60.0)
    assert held.look() is None
    write(file, 7, [1, 8, 3])
    assert held.look() == [0] + [3] * 8
