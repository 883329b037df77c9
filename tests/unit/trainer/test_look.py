"""What is refused before an accelerator is taken: prompts, the folder, the disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speculative_operator.domain.jobs import Exit
from speculative_operator.domain.reasons import Reason
from speculative_operator.trainer import __main__
from speculative_operator.trainer.look import (
    FEWEST_ROWS,
    LONGEST_LINE,
    MARKER,
    look,
    refuse_folder_of_others,
    refuse_link,
    result_of,
)
from speculative_operator.weights.source import WeightsError

PROMPT = {"prompt": "Why is the sky blue?"}
CHAT = {"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]}
MARK = {"of": "this", "verifier": "c1"}
ODD = [{"messages": [{"role": ["user"], "content": "Why?"}]}, {"messages": [{"role": 7, "content": "Why?"}]}]
SHARED = {"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "Because."}]}


def rows(folder: Path, *given: Any) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in given))
    return path


def marked(version: str = "c1", **more: str) -> dict[str, str]:
    return {"of": "this", "verifier": version, **more}


def refused(
    prompts: Path, output: Path, *, need: int = 0, answered: bool = False, mark: dict[str, str] | None = None
) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        look(prompts, output, need, mark or MARK, answered=answered)
    assert caught.value.remedy
    assert caught.value.final
    return caught.value


def test_rows_in_each_form_count_and_others_are_told(tmp_path: Path) -> None:
    prompts = rows(
        tmp_path, *[PROMPT, CHAT, SHARED] * 4, "", {"text": "no prompt"}, {"prompt": ""}, {"messages": ["?"]}, *ODD
    )
    told = look(prompts, tmp_path / "output", 0, MARK, answered=False)
    assert told == {"rows": 12, "unusable": 5, "bytes": prompts.stat().st_size}


def test_rows_without_answers_do_where_the_verifier_answers_and_not_otherwise(tmp_path: Path) -> None:
    prompts = rows(tmp_path, *[PROMPT] * FEWEST_ROWS)
    assert look(prompts, tmp_path / "output", 0, MARK, answered=False)["rows"] == FEWEST_ROWS
    found = refused(prompts, tmp_path / "output", answered=True)
    assert refused(rows(tmp_path, *ODD * 5), tmp_path / "output", answered=True).reason is Reason.BAD_DATA
    assert (found.reason, "first line without: 1" in found.message) == (Reason.BAD_DATA, True)
    assert look(rows(tmp_path, *[CHAT, SHARED] * 5), tmp_path / "kept", 0, MARK, answered=True)["rows"] == 10


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
    look(prompts, output, 0, MARK, answered=False)
    (output / "responses.jsonl").touch()
    look(prompts, output, 0, MARK, answered=False)
    assert refused(rows(tmp_path, *[PROMPT] * 10, CHAT), output).reason is Reason.OUTPUT_FOREIGN, "other prompts"
    rows(tmp_path, *[PROMPT] * 10)
    look(prompts, output, 0, MARK, answered=False)
    with pytest.raises(WeightsError):
        look(prompts, output, 0, {**MARK, "of": "another"}, answered=False)
    (output / MARKER).write_text('["no mark"]')
    assert refused(prompts, output).reason is Reason.OUTPUT_FOREIGN


def test_a_verifier_that_moved_is_another_and_its_version_is_named(tmp_path: Path) -> None:
    prompts, output = rows(tmp_path, *[PROMPT] * 10), tmp_path / "output"
    look(prompts, output, 0, marked("c0"), answered=False)
    look(prompts, output, 0, MARK, answered=False)  # a mark alone binds nobody
    (output / "responses.jsonl").touch()
    found = refused(prompts, output, mark=marked("c2"))
    assert (found.reason, "set verifier.revision to c1 to go on" in found.remedy) == (Reason.OUTPUT_FOREIGN, True)
    other = refused(rows(tmp_path, *[PROMPT] * 11), output, mark=marked("c2"))
    assert "verifier.revision" not in other.remedy, "the prompts differ too"
    look(prompts := rows(tmp_path, *[PROMPT] * 10), tmp_path / "claim", 0, marked("sha256:1"), answered=False)
    (tmp_path / "claim" / "responses.jsonl").touch()
    assert "verifier.revision" not in refused(prompts, tmp_path / "claim", mark=marked("sha256:2")).remedy, (
        "it has none"
    )


def test_a_data_set_that_moved_is_another_if_the_file_did_and_its_version_is_named(tmp_path: Path) -> None:
    prompts, output = rows(tmp_path, *[PROMPT] * 10), tmp_path / "output"
    look(prompts, output, 0, marked(data="d1"), answered=False)
    (output / "responses.jsonl").touch()
    look(prompts, output, 0, marked(data="d2"), answered=False)
    rows(tmp_path, *[PROMPT] * 11)
    found = refused(prompts, output, mark=marked(data="d2"))
    assert "a training for version d1 of the data, which has d2 now" in found.message
    assert found.remedy.startswith("set data.revision to d1 to go on, or ")
    both = refused(prompts, output, mark=marked("c2", data="d2"))
    assert both.remedy.startswith("set verifier.revision to c1 and data.revision to d1 to go on, or ")
    assert "revision" not in refused(prompts, output, mark=marked()).remedy, "prompts of a claim"
    assert "revision" not in refused(prompts, output, mark=marked(of="other", data="d2")).remedy


def test_the_version_is_read_from_what_inspect_left(tmp_path: Path) -> None:
    prompts, output, file = rows(tmp_path, *[PROMPT] * 10), tmp_path / "output", tmp_path / "inspected.json"
    assert [result_of("verifier", one) for one in (None, file)] == [{}, {}]
    file.write_text(json.dumps({"verifier": {"pin": {"resolved": "c1"}}}))
    arguments = ["--prompts", str(prompts), "--output", str(output), "--made-of", "this", "--inspected", str(file)]
    arguments += ["--claim", str(tmp_path)]
    assert __main__.main(["look", *arguments]) == 0
    look(prompts, output, 0, MARK, answered=False)


def test_a_link_to_the_folder_or_out_of_its_claim_is_not_followed(tmp_path: Path) -> None:
    claim, theirs = tmp_path / "claim", tmp_path / "theirs"
    (claim / "deep").mkdir(parents=True)
    (claim / "output").symlink_to(claim / "deep")
    (claim / "nowhere").symlink_to(claim / "none")
    (claim / "out").symlink_to(theirs)
    (claim / "within").symlink_to("deep")
    (tmp_path / "mounted").symlink_to(claim)
    told = {"output": "is a symbolic link", "nowhere": "is a symbolic link", "out/a/b": "leads out of its claim"}
    for name, why in told.items():
        with pytest.raises(WeightsError) as caught:
            refuse_link(claim / name, claim)
        assert (caught.value.reason, why in caught.value.message) == (Reason.OUTPUT_FOREIGN, True)
        assert caught.value.remedy
    for name in ("deep", "new/output", "within/output"):
        refuse_link(claim / name, claim)
        refuse_link(tmp_path / "mounted" / name, tmp_path / "mounted")
    arguments = ["--prompts", str(rows(tmp_path, *[PROMPT] * 10)), "--output", str(claim / "out" / "head")]
    assert __main__.main(["look", *arguments, "--claim", str(claim)]) == Exit.FINAL
    assert not theirs.exists()


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
    look(rows(tmp_path, *[PROMPT] * 10), output, 0, {**MARK, "of": "a"}, answered=False)
    assert [path.name for path in output.iterdir()] == ["training-of.json"]


def test_a_line_without_end_is_bad_data(tmp_path: Path) -> None:
    with (tmp_path / "prompts.jsonl").open("wb") as file:
        file.truncate(LONGEST_LINE + 2)
    found = refused(tmp_path / "prompts.jsonl", tmp_path / "out")
    assert (found.reason, "line 1 is longer than" in str(found)) == (Reason.BAD_DATA, True)


def test_a_mark_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "victim").write_text("theirs")
    (tmp_path / "out" / "training-of.partial").symlink_to(tmp_path / "victim")
    look(rows(tmp_path, *[PROMPT] * FEWEST_ROWS), tmp_path / "out", 0, MARK, answered=False)
    assert (tmp_path / "victim").read_text() == "theirs"
    assert (tmp_path / "out" / MARKER).is_file()


@pytest.mark.parametrize("above", ["config.json", "team/config.json", f"team/{MARKER}"])
def test_nothing_is_written_into_the_folder_of_a_model_or_of_another_training(tmp_path: Path, above: str) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / above).write_text("{}")
    with pytest.raises(WeightsError, match="lies in"):
        refuse_folder_of_others(tmp_path / "team" / "head", tmp_path)
    refuse_folder_of_others(tmp_path / "team", tmp_path / "team")
