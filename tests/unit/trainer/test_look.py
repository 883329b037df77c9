"""What is refused before an accelerator is taken: prompts, the folder, the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speculative_operator.domain.reasons import Reason
from speculative_operator.trainer import __main__
from speculative_operator.trainer.look import FEWEST_ROWS, MARKER, look, version_in
from speculative_operator.weights.source import WeightsError

PROMPT = {"prompt": "Why is the sky blue?"}
CHAT = {"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]}
ODD = [{"messages": [{"role": ["user"], "content": "Why?"}]}, {"messages": [{"role": 7, "content": "Why?"}]}]
SHARED = {"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "Because."}]}


def rows(folder: Path, *given: Any) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in given))
    return path


def refused(prompts: Path, output: Path, *, need: int = 0, answered: bool = False, version: str = "c1") -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        look(prompts, output, need, "this", version, answered=answered)
    assert caught.value.remedy
    assert caught.value.final
    return caught.value


def test_rows_in_each_form_count_and_others_are_told(tmp_path: Path) -> None:
    prompts = rows(
        tmp_path, *[PROMPT, CHAT, SHARED] * 4, "", {"text": "no prompt"}, {"prompt": ""}, {"messages": ["?"]}, *ODD
    )
    told = look(prompts, tmp_path / "output", 0, "this", "c1", answered=False)
    assert told == {"rows": 12, "unusable": 5, "bytes": prompts.stat().st_size}


def test_rows_without_answers_do_where_the_verifier_answers_and_not_otherwise(tmp_path: Path) -> None:
    prompts = rows(tmp_path, *[PROMPT] * FEWEST_ROWS)
    assert look(prompts, tmp_path / "output", 0, "this", "c1", answered=False)["rows"] == FEWEST_ROWS
    found = refused(prompts, tmp_path / "output", answered=True)
    assert refused(rows(tmp_path, *ODD * 5), tmp_path / "output", answered=True).reason is Reason.BAD_DATA
    assert (found.reason, "first line without: 1" in found.message) == (Reason.BAD_DATA, True)
    assert look(rows(tmp_path, *[CHAT, SHARED] * 5), tmp_path / "kept", 0, "this", "c1", answered=True)["rows"] == 10


def test_bad_prompts_are_named_with_their_line(tmp_path: Path) -> None:
    output = tmp_path / "output"
    for given, said in (
        ([PROMPT, '{"prompt": "cut'], "line 2 is no JSON object"),
        ([PROMPT, '["a list"]'], "line 2 is no JSON object"),
        ([PROMPT], "1 lines are usable"),
        ([], "0 lines are usable"),
    ):
        found = refused(rows(tmp_path, *given), output)
        assert (found.reason, said in found.message) == (Reason.BAD_DATA, True), found.message
    assert refused(tmp_path / "none.jsonl", output).reason is Reason.BAD_DATA
    assert not output.exists(), "nothing was written"


def test_a_disk_that_is_too_small_is_told_in_bytes(tmp_path: Path) -> None:
    found = refused(rows(tmp_path, *[PROMPT] * 10), tmp_path / "output", need=10**18)
    assert (found.reason, str(10**18) in found.message) == (Reason.DISK_FULL, True)


def test_a_folder_is_used_again_for_the_same_training_alone(tmp_path: Path) -> None:
    prompts, output = rows(tmp_path, *[PROMPT] * 10), tmp_path / "deep" / "output"
    look(prompts, output, 0, "this", "c1", answered=False)
    (output / "responses.jsonl").touch()
    look(prompts, output, 0, "this", "c1", answered=False)
    assert refused(rows(tmp_path, *[PROMPT] * 10, CHAT), output).reason is Reason.OUTPUT_FOREIGN, "other prompts"
    rows(tmp_path, *[PROMPT] * 10)
    look(prompts, output, 0, "this", "c1", answered=False)
    with pytest.raises(WeightsError):
        look(prompts, output, 0, "another", "c1", answered=False)
    (output / MARKER).write_text('["no mark"]')
    assert refused(prompts, output).reason is Reason.OUTPUT_FOREIGN


def test_a_verifier_that_moved_is_another_and_its_version_is_named(tmp_path: Path) -> None:
    prompts, output = rows(tmp_path, *[PROMPT] * 10), tmp_path / "output"
    look(prompts, output, 0, "this", "c0", answered=False)
    look(prompts, output, 0, "this", "c1", answered=False)  # a mark alone binds nobody
    (output / "responses.jsonl").touch()
    found = refused(prompts, output, version="c2")
    assert (found.reason, "set verifier.revision to c1 to go on" in found.remedy) == (Reason.OUTPUT_FOREIGN, True)
    other = refused(rows(tmp_path, *[PROMPT] * 11), output, version="c2")
    assert "verifier.revision" not in other.remedy, "the prompts differ too"
    look(prompts := rows(tmp_path, *[PROMPT] * 10), tmp_path / "claim", 0, "this", "sha256:1", answered=False)
    (tmp_path / "claim" / "responses.jsonl").touch()
    assert "verifier.revision" not in refused(prompts, tmp_path / "claim", version="sha256:2").remedy, "it has none"


def test_the_version_is_read_from_what_inspect_left(tmp_path: Path) -> None:
    prompts, output, file = rows(tmp_path, *[PROMPT] * 10), tmp_path / "output", tmp_path / "inspected.json"
    assert [version_in(None), version_in(file)] == ["", ""]
    file.write_text(json.dumps({"verifier": {"pin": {"resolved": "c1"}}}))
    arguments = ["--prompts", str(prompts), "--output", str(output), "--made-of", "this", "--inspected", str(file)]
    assert __main__.main(["look", *arguments]) == 0
    look(prompts, output, 0, "this", "c1", answered=False)


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    prompts, output, theirs = rows(tmp_path, *[PROMPT] * 10), tmp_path / "output", tmp_path / "theirs"
    output.symlink_to(theirs)
    assert refused(prompts, output).reason is Reason.OUTPUT_FOREIGN, "even one that leads nowhere"
    theirs.mkdir()
    found = refused(prompts, output)
    assert (found.reason, "is a symbolic link" in found.message) == (Reason.OUTPUT_FOREIGN, True)
    assert list(theirs.iterdir()) == []


def test_a_folder_with_files_of_others_is_left_alone(tmp_path: Path) -> None:
    prompts, output = rows(tmp_path, *[PROMPT] * 10), tmp_path / "output"
    output.mkdir()
    (output / "thesis.txt").touch()
    assert refused(prompts, output).reason is Reason.OUTPUT_FOREIGN
    assert [path.name for path in output.iterdir()] == ["thesis.txt"]


def test_a_mark_that_was_half_written_is_written_again(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    (output / "training-of.partial").write_text('{"of": "a')
    look(rows(tmp_path, *[PROMPT] * 10), output, 0, "a", "c1", answered=False)
    assert [path.name for path in output.iterdir()] == ["training-of.json"]
