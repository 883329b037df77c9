"""`verify` against a stand-in engine: what it asks for, what it says, and that drafts come back however it ends."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_cluster_commands import FakeCluster, stored

from speculative_operator.cli import suspending, verify
from speculative_operator.cli.asking import prompts_of
from speculative_operator.cli.commands import CommandError
from speculative_operator.domain import names
from speculative_operator.outputs.record import Verdict, read

TOKENS = 16


class EnginePod(FakeCluster):
    """One ready pod, whose engine answers a prompt with its own words. It drafts unless drafts are suspended."""

    def __init__(self, body: dict[str, Any] | None = None) -> None:
        super().__init__(body or stored("tuned"))
        meta = {"name": "demo-1", "namespace": "models", "labels": {"pod-template-hash": "abc"}}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.serving = [{"metadata": meta, "status": ready, "spec": {}}]
        self.drafted, self.answers, self.obeys = 0, 0, True
        self.meanwhile: Callable[[], object] = lambda: None
        self.wrong: Callable[[int, bool], bool] = lambda place, drafts: False
        """(position, whether drafts were made) -> whether the token there is another one."""
        self.near = -9.0
        """Logprob of that other token."""

    @property
    def suspended(self) -> bool:
        values = [value for _, annotation, value in self.written if annotation == names.ANNOTATION_SUSPEND]
        return self.obeys and bool(values) and values[-1] is not None

    def ask(self, pod: Mapping[str, Any], path: str, body: Any = None, seconds: float = 0.0) -> str:
        if path == "v1/models":
            return json.dumps({"data": [{"id": "qwen"}]})
        if path == "metrics":
            return f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {self.drafted}\n'
        self.meanwhile()
        self.answers += 1
        assert (body["model"], body["temperature"]) == ("qwen", 0)
        drafts = self.drafts(pod)
        self.drafted += 3 * drafts
        right = [f"{body['prompt'][:9]}{place}" for place in range(TOKENS)]
        tokens = [f"not {one}" if self.wrong(place, drafts) else one for place, one in enumerate(right)]
        top = [{one: -0.1, f"not {one}": self.near} for one in right]
        values = [known[one] for one, known in zip(tokens, top, strict=True)]
        told = {"tokens": tokens, "token_logprobs": values, "top_logprobs": top}
        return json.dumps({"choices": [{"logprobs": told}]})

    def drafts(self, pod: Mapping[str, Any]) -> bool:
        return not self.suspended and pod["metadata"]["name"] != "plain-1"

    def pods(self, name: str) -> list[dict[str, Any]]:
        one = self.serving[0]
        return [{**one, "metadata": {**one["metadata"], "name": f"{name}-1"}}]


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> EnginePod:
    found = EnginePod()
    monkeypatch.setattr(verify, "Cluster", found)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return found


def left(pod: EnginePod) -> dict[str, str | None]:
    """Annotation -> value that the command leaves."""
    return {annotation: value for _, annotation, value in pod.written}


WORDS = ("verify", "demo", "--tokens", str(TOKENS))


@pytest.mark.parametrize(
    ("place", "near", "status", "verdict"),
    [(99, -9.0, 0, Verdict.SAME), (5, -9.0, 1, Verdict.DIFFERENT), (5, -0.2, 0, Verdict.TIES)],
)
def test_what_it_finds_is_said_and_kept(
    pod: EnginePod, run: Run, place: int, near: float, status: int, verdict: Verdict
) -> None:
    pod.wrong, pod.near = lambda at, drafts: drafts and at == place, near
    found, out, _ = run(*WORDS, "--limit", "4")
    assert (found, out.splitlines()[-2].split(":")[0]) == (status, verdict)
    kept = read(left(pod)[names.ANNOTATION_VERIFIED] or "")
    assert kept is not None
    assert (kept.verdict, kept.template, kept.prompts) == (verdict, "abc", 4)
    assert left(pod)[names.ANNOTATION_SUSPEND] is None


def test_what_differs_without_drafts_too_is_said_and_blames_nobody(pod: EnginePod, run: Run) -> None:
    """The engine answers each time otherwise from the fourth token on."""
    pod.wrong = lambda place, drafts: place >= 3 and bool(pod.answers % 2)
    status, out, _ = run(*WORDS, "--limit", "1")
    assert status == 0
    assert "0 elsewhere, 1 without drafts too" in out


def test_a_plain_object_beside_it_needs_no_hold(pod: EnginePod, run: Run) -> None:
    pod.wrong = lambda place, drafts: drafts and place == 2
    status, out, _ = run(*WORDS, "--against", "plain")
    assert status == 1
    assert "token 3" in out
    assert names.ANNOTATION_SUSPEND not in left(pod)


def test_an_object_that_drafts_too_is_no_reference(pod: EnginePod, run: Run) -> None:
    status, _, err = run(*WORDS, "--against", "other")
    assert status == 1
    assert "other drafts too" in err


@pytest.mark.parametrize("ending", [KeyboardInterrupt, CommandError("the pod is gone"), signal.SIGTERM])
def test_drafts_come_back_with_the_command(pod: EnginePod, run: Run, ending: Any) -> None:
    def end() -> None:
        if pod.suspended and pod.answers > 4:
            if isinstance(ending, signal.Signals):
                os.kill(os.getpid(), ending)
            else:
                raise ending

    pod.meanwhile, before = end, signal.getsignal(signal.SIGTERM)
    status, _, _ = run(*WORDS)
    assert status in (1, 130)
    assert left(pod) == {names.ANNOTATION_SUSPEND: None}
    assert signal.getsignal(signal.SIGTERM) is before


def test_pods_that_draft_on_are_compared_with_nothing(
    pod: EnginePod, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspending, "DELIVERY_SECONDS", 0.05)
    pod.obeys = False
    status, _, err = run(*WORDS)
    assert status == 1
    assert "still draft" in err
    assert left(pod) == {names.ANNOTATION_SUSPEND: None}


def test_a_suspension_that_ends_too_early_is_said(pod: EnginePod, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])

    def wait() -> None:
        now[0] += 30.0

    pod.meanwhile = wait
    status, _, err = run(*WORDS, "--minutes", "2")
    assert status == 1
    assert "raise --minutes" in err


@pytest.mark.parametrize(
    ("name", "why"), [("rollout-for-k", "--against"), ("sglang", "--against"), ("off", "--against")]
)
def test_where_k_cannot_be_live_it_says_what_remains(
    pod: EnginePod, run: Run, name: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.body = stored(name)
    status, _, err = run(*WORDS)
    assert status == 1
    assert why in err
    assert pod.written == []


@pytest.mark.parametrize("words", [("--minutes", "16"), ("--minutes", "0"), ("--tokens", "0"), ("--parallel", "-1")])
def test_a_wrong_command_line(pod: EnginePod, run: Run, words: tuple[str, ...]) -> None:
    assert run("verify", "demo", *words)[0] == 2
    assert pod.written == []


def test_prompts(tmp_path: Path, run: Run, pod: EnginePod) -> None:
    assert len(set(prompts_of(""))) == 24
    file = tmp_path / "prompts"
    file.write_text('plain words\n\n{"prompt": "two\\nlines"}\n')
    assert prompts_of(str(file)) == ["plain words", "two\nlines"]
    for wrong in ("", '{"text": "x"}', '{"prompt": 1}', "{"):
        file.write_text(wrong)
        assert run("verify", "demo", "--prompts", str(file))[0] == 2
