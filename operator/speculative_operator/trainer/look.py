"""Whether a training has what it needs: prompts that the library can read, a folder of its own, room on the disk. Run
without accelerators before any is taken. Called by `__main__`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speculative_operator.domain.formats import size
from speculative_operator.domain.reading import mapping, parse_json, text
from speculative_operator.domain.reasons import Reason
from speculative_operator.weights import disk
from speculative_operator.weights.source import WeightsError

MARKER = "training-of.json"
"""In the folder of output: what the training there is made of, the version of its verifier, the hash of its prompts and
the version of their data set, if they are of one. Another of the same goes on; others keep out."""
_FIELDS = {"verifier": "verifier.revision", "data": "data.revision"}
"""Part of a mark that may move by itself -> field of the spec that holds it."""
FEWEST_ROWS = 10
"""The library holds a tenth of the rows out; with fewer rows nothing would be left for one of the two."""
LONGEST_LINE = 16 << 20
"""Bytes of a line. A chat that an engine can take is far below; the container has 2 GiB for all it reads."""
_TURNS = ("messages", "conversations", "prompt")
_USER, _ASSISTANT = {"user", "human"}, {"assistant", "gpt"}


def look(prompts: Path, output: Path, need: int, mark: Mapping[str, str], *, answered: bool) -> dict[str, int]:
    """`rows` and `unusable` rows of the prompts, and their `bytes`. Marks the folder of output with `mark` and the hash
    of the prompts. `answered`: rows need an answer, as nobody answers them anew; `need`: bytes that must be free.
    Raises WeightsError."""
    told, digest = _read(prompts, answered=answered)
    _claim(output, {**mark, "prompts": digest})
    disk_left = disk.free(output)
    if disk_left < need:
        raise WeightsError(
            Reason.DISK_FULL,
            f"the claim of {output} has {disk_left} bytes free ({size(disk_left)}), and checkpoints need {need}",
            remedy=f"enlarge the claim by {size(need - disk_left)}, or name another one in output",
        )
    return told


def result_of(side: str, file: Path | None) -> Mapping[str, Any]:
    """What `speculative-weights` told of `verifier` or `prompts` in its result file; empty where there is none."""
    return mapping(parse_json(file.read_text(encoding="utf-8")) if file and file.is_file() else None, side)


def _read(prompts: Path, *, answered: bool) -> tuple[dict[str, int], str]:
    """What `look` tells, and the SHA-256 of the file."""
    if prompts.suffix != ".jsonl" or not prompts.is_file():
        raise _bad(prompts, "there is no such file of JSON lines", "name a file on the claim that ends in .jsonl")
    usable, unusable, first, read = 0, 0, 0, hashlib.sha256()
    with prompts.open("rb") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE + 1), b""), 1):
            read.update(line)
            if len(line) > LONGEST_LINE:
                raise _bad(prompts, f"line {number} is longer than {size(LONGEST_LINE)}", "write one chat on each line")
            if not line.strip():
                continue
            row = parse_json(line.decode("utf-8", "replace"))
            if not isinstance(row, Mapping):
                raise _bad(prompts, f"line {number} is no JSON object", "write one object on each line")
            if _is_usable(row, answered=answered):
                usable += 1
            else:
                unusable, first = unusable + 1, first or number
    if usable < FEWEST_ROWS:
        fields = "messages that end with an answer" if answered else "prompt (a text), messages or conversations"
        where = f"; the first line without: {first}" if first else ""
        raise _bad(prompts, f"{usable} lines are usable{where}", f"give {FEWEST_ROWS} lines or more with {fields}")
    return {"rows": usable, "unusable": unusable, "bytes": prompts.stat().st_size}, read.hexdigest()


def _is_usable(row: Mapping[str, Any], *, answered: bool) -> bool:
    """Whether the library takes something from the row: `extract_conversation` of its regenerate_responses.py."""
    turns: list[Any] = next((row[name] for name in _TURNS if isinstance(row.get(name), list) and row[name]), [])
    roles = [str(turn.get("role") or turn.get("from")) for turn in turns if isinstance(turn, Mapping)]
    if answered:
        return bool(roles) and roles[-1] in _ASSISTANT
    prompt = row.get("prompt")
    return bool(_USER & set(roles)) or (isinstance(prompt, str) and bool(prompt))


def _claim(output: Path, mark: Mapping[str, str]) -> None:
    """Make the folder and mark it, or see that it has the same mark. Raises WeightsError."""
    marker = output / MARKER
    draft = marker.with_suffix(".partial")
    with disk.explain_errors(output):
        output.mkdir(parents=True, exist_ok=True)
        made = any(path not in (draft, marker) for path in output.iterdir())
        if made and not marker.exists():
            raise _foreign(output, "holds files, and no training's mark")
        if not made:  # a mark alone binds nobody: nothing was trained yet
            draft.unlink(missing_ok=True)
            with draft.open("x", encoding="utf-8") as file:  # never through a link that somebody put there
                file.write(json.dumps(mark) + "\n")
            draft.rename(marker)
        held = mapping(parse_json(marker.read_text(encoding="utf-8")))
    moved = {name for name in {*held, *mark} if held.get(name) != mark.get(name)}
    if moved <= {"data"}:  # the file is the same at either version
        return
    moved -= {"prompts"} if "data" in moved else set()
    versions = {name: text(held, name) for name in _FIELDS if name in moved & mark.keys()}
    if moved == versions.keys() and all(versions.values()):
        what = " and ".join(f"version {old} of the {one}, which has {mark[one]} now" for one, old in versions.items())
        settings = " and ".join(f"{_FIELDS[one]} to {old}" for one, old in versions.items())
        can_go_on = not any(":" in one for one in versions.values())  # claims have no revisions
        raise _foreign(output, f"holds a training for {what}", f"set {settings} to go on, or " if can_go_on else "")
    raise _foreign(output, "holds a training of another verifier, method, data, sequenceLength or epochs")


def refuse_folder_of_others(output: Path, claim: Path) -> None:
    """Raises WeightsError where a folder above the output is a model or another training's: what is written into a
    model changes its version, and a training removes what it does not know in its checkpoints."""
    for above in output.parents:
        if above.is_relative_to(claim):
            for name in (MARKER, "config.json"):
                if (above / name).exists():
                    raise _foreign(output, f"lies in {above}, which is {'a training' if name == MARKER else 'a model'}")


def refuse_link(output: Path, claim: Path) -> None:
    """Raises WeightsError where the folder of output is a symbolic link, or lies behind one that leads out of the claim
    that is mounted at `claim`: what it leads to may be of others."""
    if output.is_symlink():
        raise _foreign(output, "is a symbolic link")
    if not output.resolve().is_relative_to(claim.resolve()):
        raise _foreign(output, "lies behind a symbolic link that leads out of its claim")


def _foreign(output: Path, what: str, first: str = "") -> WeightsError:
    remedy = f"{first}name an empty or new folder in output"
    return WeightsError(Reason.OUTPUT_FOREIGN, f"{output} {what}", remedy=remedy)


def _bad(prompts: Path, what: str, remedy: str) -> WeightsError:
    return WeightsError(Reason.BAD_DATA, f"{prompts}: {what}", file=prompts.name, remedy=remedy)
