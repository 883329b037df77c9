"""What is refused before an accelerator is taken: prompts, the folder, the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speculative_operator.domain.reasons import Reason
from speculative_operator.trainer.look import FEWEST_ROWS, MARKER, look
from speculative_operator.weights.source import WeightsError

PROMPT = {"prompt": "Why is the sky blue?"}
CHAT = {"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]}
ODD = [{"messages": [{"role": ["user"], "content": "Why?"}]}, {"messages": [{"role": 7, "content": "Why?"}]}]
SHARED = {"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "Because."}]}


def rows(folder: Path, *given: Any) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in given))
    return path


def refused(prompts: Path, output: Path, *, need: int = 0, answered: bool = False) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        look(prompts, output, need, "this", answered=answered)
    assert caught.value.remedy
    assert caught.value.final
    return caught.value


def test_rows_in_each_form_count_and_others_are_told(tmp_path: Path) -> None:
    prompts = rows(
        tmp_path, *[PROMPT, CHAT, SHARED] * 4, "", {"text": "no prompt"}, {"prompt": ""}, {"messages": ["?"]}, *ODD
    )
    told = look(prompts, tmp_path / "output", 0, "this", answered=False)
    assert told == {"rows": 12, "unusable": 5, "bytes": prompts.stat().st_size}


def test_rows_without_answers_do_where_the_verifier_answers_and_not_otherwise(tmp_path: Path) -> None:
    prompts = rows(tmp_path, *[PROMPT] * FEWEST_ROWS)
    assert look(prompts, tmp_path / "output", 0, "this", answered=False)["rows"] == FEWEST_ROWS
    found = refused(prompts, tmp_path / "output", answered=True)
    assert refused(rows(tmp_path, *ODD * 5), tmp_path / "output", answered=True).reason is Reason.BAD_DATA
    assert (found.reason, "first line without: 1" in found.message) == (Reason.BAD_DATA, True)
    assert look(rows(tmp_path, *[CHAT, SHARED] * 5), tmp_path / "kept", 0, "this", answered=True)["rows"] == 10


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
    look(prompts, output, 0, "this", answered=False)
    (output / "responses.jsonl").touch()
    look(prompts, output, 0, "this", answered=False)
    assert refused(rows(tmp_path, *[PROMPT] * 10, CHAT), output).reason is Reason.OUTPUT_FOREIGN, "other prompts"
    rows(tmp_path, *[PROMPT] * 10)
    look(prompts, output, 0, "this", answered=False)
    with pytest.raises(WeightsError):
        look(prompts, output, 0, "another", answered=False)
    (output / MARKER).write_text('["no mark"]')
    assert refused(prompts, output).reason is Reason.OUTPUT_FOREIGN


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
    look(rows(tmp_path, *[PROMPT] * 10), output, 0, "a", answered=False)
    assert [path.name for path in output.iterdir()] == ["training-of.json"]
