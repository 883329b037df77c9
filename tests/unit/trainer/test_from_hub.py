"""Verifier and prompts of a hub: what the commands of NAME-look fetch lies where those of NAME-train read it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.training.seen import TRAINING
from tests.unit.weights import made

from modelservers.hub import HubServer
from speculative_operator.domain.jobs import Exit
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.trainer.look import MARKER
from speculative_operator.training.jobs import Known, Means, look_job, train_job

HUB = replace(
    TRAINING,
    verifier=ModelSource(Scheme.HF, "org/base"),
    prompts=ModelSource(Scheme.HF, "datasets/org/chats/data/train.jsonl"),
    output=ModelSource(Scheme.PVC, "models/out/head"),
    accelerators=0,
)
PROGRAMS = {
    "speculative-weights": "speculative_operator.weights",
    "speculative-training": "speculative_operator.trainer",
}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    """Serves `org/base` and the data set `org/chats`."""
    made.model(tmp_path / "hub" / "org" / "base")
    chats = tmp_path / "hub" / "datasets" / "org" / "chats" / "data"
    chats.mkdir(parents=True)
    (chats / "train.jsonl").write_text(json.dumps({"prompt": "Why?"}) + "\n")
    server = HubServer(tmp_path / "hub")
    with server.running():
        yield server


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A folder with what pods of both Jobs mount, and of which they make use here at the same time."""
    for folder in ("training", "tmp"):
        (tmp_path / "pod" / folder).mkdir(parents=True)
    return tmp_path / "pod"


def ran(job: dict[str, Any], hub: HubServer, place: Path) -> dict[str, tuple[int, dict[str, Any]]]:
    """Container -> exit status and result, until one fails; `/training` and `/tmp` of the pod lie below `place`."""
    found: dict[str, tuple[int, dict[str, Any]]] = {}
    pod = job["spec"]["template"]["spec"]
    for one in (*pod["initContainers"], *pod["containers"]):
        env = {each["name"]: moved(each.get("value", ""), place) for each in one["env"]}
        env = {**os.environ, **env, "HF_ENDPOINT": hub.url, "NO_PROXY": "*"}
        program, *words = one["command"]
        done = subprocess.run(
            [sys.executable, "-m", PROGRAMS[program], *(moved(word, place) for word in words)],
            env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        found[one["name"]] = done.returncode, json.loads(done.stdout.splitlines()[-1])
        if done.returncode:
            break
    return found


def moved(word: str, place: Path) -> str:
    return f"{place}{word}" if word.startswith(("/training", "/tmp")) else word


def resolved(found: tuple[int, dict[str, Any]], side: str) -> str:
    return str(found[1][side]["pin"]["resolved"])


def test_what_was_fetched_lies_where_it_is_read(hub: HubServer, pod: Path, tmp_path: Path) -> None:
    few = ran(look_job(HUB, Means("o")), hub, pod)
    assert (list(few), few["look"][0]) == (["inspect", "prompts", "look"], Exit.FINAL)
    assert few["look"][1]["error"]["reason"] == "BadData"
    (tmp_path / "hub/datasets/org/chats/data/train.jsonl").write_text(
        "".join(f'{{"prompt": "{n}?"}}\n' for n in range(12))
    )
    found = ran(look_job(HUB, Means("o")), hub, pod)
    assert [code for code, _ in found.values()] == [Exit.DONE] * 4, found
    assert found["look"][1]["rows"] == 12
    commit = resolved(found["prompts"], "prompts")
    assert json.loads((pod / "training/out/head" / MARKER).read_text())["data"] == commit
    known = Known(resolved(found["fetch"], "verifier"), 4, commit)
    answers, _, _ = train_job(HUB, known, 60, Means("o"))["spec"]["template"]["spec"]["initContainers"]
    env = {one["name"]: moved(one["value"], pod) for one in answers["env"]}
    assert Path(env["PROMPTS"]).read_text().count("prompt") == 12
    assert (Path(env["VERIFIER"]) / "config.json").is_file()


def test_a_file_that_is_not_there_is_told_with_its_neighbours(hub: HubServer, pod: Path) -> None:
    prompts = ModelSource(Scheme.HF, "datasets/org/chats/data/none.jsonl", "main")
    found = ran(look_job(replace(HUB, prompts=prompts), Means("o")), hub, pod)
    code, told = found["prompts"]
    assert (list(found), code, told["error"]["reason"]) == (["inspect", "prompts"], Exit.FINAL, "SourceNotFound")
    assert told["error"]["side"] == "prompts"
    assert "it has data/train.jsonl" in told["error"]["message"]
