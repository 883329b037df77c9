"""`bench` against a stand-in cluster: what it makes, asks, refuses and leaves behind."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_verify import EnginePod

from speculative_operator.cli import bench, bench_jobs
from speculative_operator.cli.commands import UnseenError
from speculative_operator.domain import names
from speculative_operator.render.load_job import MARK

TABLE = (Path(__file__).parents[2] / "fixtures" / "guidellm.csv").read_text()
DONE = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}


class Loaded(EnginePod):
    """A cluster in which each Job ends at once, after its requests have met the engine."""

    def __init__(self) -> None:
        super().__init__()
        assert self.body is not None
        self.body["metadata"]["uid"] = "u-1"
        self.body["status"] |= {"url": "http://demo.models.svc:8000", "readyReplicas": 1}
        self.made: list[dict[str, Any]] = []
        self.ended: list[Mapping[str, Any]] = []
        self.table, self.end, self.busy = TABLE, DONE, 0.0
        self.running: Callable[[], object] = lambda: None
        self.calls: list[str] = []
        """What was asked of the API server."""

    def ask(self, pod: Mapping[str, Any], path: str, body: Any = None, seconds: float = 0.0) -> str:
        if path != "metrics":
            return super().ask(pod, path, body, seconds)
        lines = {"generation_tokens_total": self.answers, "num_requests_running": self.busy}
        if pod["metadata"]["name"] == "demo-1":
            drafted = {"num_draft_tokens": self.drafted, "num_drafts": self.drafted / 3}
            accepted = {"num_accepted_tokens": self.drafted / 2}
            lines |= {f"spec_decode_{name}_total": value for name, value in {**drafted, **accepted}.items()}
        return "".join(f'vllm:{name}{{engine="0"}} {value}\n' for name, value in lines.items())

    def create(self, body: Mapping[str, Any]) -> None:
        kept: dict[str, Any] = json.loads(json.dumps(body))
        kept["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
        if kept["kind"] == "Job":
            pod = kept["spec"]["template"]["spec"]
            url = pod["containers"][0]["args"][2]
            assert pod["volumes"][1]["configMap"]["name"] in [one["metadata"]["name"] for one in self.made]
            self.drafted += 300 * (self.drafts(self.pods("demo")[0]) and "demo" in url)
        self.made.append(kept)

    def annotate(self, name: str, annotation: str, value: str | None) -> None:
        self.calls.append("annotate")
        super().annotate(name, annotation, value)

    def jobs(self, label: str) -> list[dict[str, Any]]:
        self.calls.append("jobs")
        self.running()
        assert label == f"{names.LABEL_BENCH}=demo"
        return [{**one, "status": self.end} for one in self.made if one["kind"] == "Job"]

    def pods_of_job(self, name: str) -> list[dict[str, Any]]:
        labels = {"batch.kubernetes.io/job-name": name}
        meta = {"name": f"{name}-x", "namespace": "models", "labels": labels}
        return [{"metadata": meta, "spec": {"nodeName": "node-1"}, "status": {"phase": "Succeeded"}}]

    def log(self, pod: Mapping[str, Any]) -> str:
        return f"words\n{MARK}\n{self.table}"

    def warnings(self, name: str) -> list[str]:
        return ["exceeded quota: compute"]

    def annotate_job(self, name: str, annotation: str, value: str) -> None:
        (job,) = [one for one in self.made if one["metadata"].get("name") == name]
        job["metadata"]["annotations"] = {annotation: value}

    def delete_labelled(self, kind: str, label: str) -> None:
        self.calls.append(f"delete {kind}s")
        self.ended += [one for one in self.made if one["kind"] == kind]
        self.made = [one for one in self.made if one["kind"] != kind]

    def delete_job(self, name: str) -> None:
        self.calls.append(f"delete {name}")
        self.ended += [one for one in self.made if one["metadata"].get("name") == name]

    def arguments(self) -> list[list[str]]:
        return [one["spec"]["template"]["spec"]["containers"][0]["args"] for one in self.made if one["kind"] == "Job"]


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Loaded:
    found = Loaded()
    monkeypatch.setattr(bench, "Cluster", found)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return found


WORDS = ("bench", "demo", "--rates", "1,4")


def suspensions(loaded: Loaded) -> list[bool]:
    return [value is not None for _, annotation, value in loaded.written if annotation == names.ANNOTATION_SUSPEND]


def test_both_sides_are_measured_in_turns_on_one_object(loaded: Loaded, run: Run) -> None:
    status, out, err = run(*WORDS, "-o", "json")
    assert status == 0, err
    assert "2,400 requests" not in err
    assert "1,200 requests with 614,400 prompt and up to 307,200 output tokens, about 14 minutes" in err
    told = json.loads(out)
    assert [(one["rate"], len(one["plain"]), len(one["drafted"])) for one in told["rungs"]] == [(1, 2, 2), (4, 2, 2)]
    assert {one["k"] for rung in told["rungs"] for one in rung["drafted"]} == {3.0}
    assert {one["k"] for rung in told["rungs"] for one in rung["plain"]} == {None}
    # with, without, without, with: drafts are suspended once for each rate, and the first Job only warms up
    assert suspensions(loaded) == [True, False, True, False]
    rates = [words[words.index("--profile") + 1] for words in loaded.arguments()]
    assert rates == ["kind=constant,rate=1"] * 5 + ["kind=constant,rate=4"] * 4
    seeds = [words[words.index("--seed") + 1] for words in loaded.arguments()]
    assert len(set(seeds)) == 9
    assert not [one for one in loaded.made if one["kind"] == "ConfigMap"]


def test_what_was_measured_is_shown_again_and_drawn(loaded: Loaded, run: Run, tmp_path: Path) -> None:
    run(*WORDS)
    page = tmp_path / "bench.html"
    status, out, _ = run("bench", "demo", "--show", "--html", str(page))
    assert status == 0
    assert "TPOT p50" in out
    assert "speculative compare judges by real requests." in out
    text = page.read_text()
    assert "with drafts, p99" in text
    assert "http" not in text.partition("<script")[0]


def test_another_object_answers_without_drafts_and_nothing_is_suspended(loaded: Loaded, run: Run) -> None:
    status, _, err = run(*WORDS, "--against", "plain")
    assert status == 0, err
    assert suspensions(loaded) == []


def test_an_object_that_serves_others_is_loaded_only_when_asked_to(loaded: Loaded, run: Run) -> None:
    loaded.busy = 1.0
    status, _, err = run(*WORDS)
    assert (status, loaded.made, suspensions(loaded)) == (1, [], [])
    assert "demo serves requests now; wait for a quiet hour, or --yes" in err
    assert run(*WORDS, "--yes")[0] == 0


def test_an_object_that_cannot_be_seen_counts_as_serving(
    loaded: Loaded, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> str:
        raise UnseenError("pods/proxy is forbidden")

    monkeypatch.setattr(loaded, "ask", refuse)
    status, _, err = run(*WORDS, "--against", "plain")
    assert (status, loaded.made) == (1, [])
    assert "cannot be seen; --yes" in err


def test_a_step_whose_drafts_cannot_be_counted_makes_no_result(loaded: Loaded, run: Run) -> None:
    """A pod was replaced meanwhile, and its counters begin anew."""

    def reset() -> None:
        if suspensions(loaded)[-1:] == [True]:
            loaded.drafted = 0

    loaded.running = reset
    status, _, err = run(*WORDS)
    assert status == 1
    assert "cannot be seen" in err


@pytest.mark.parametrize("ending", [KeyboardInterrupt, UnseenError("the API server is gone")])
def test_an_end_before_the_end_stops_the_job_first_and_waits_for_nothing(
    loaded: Loaded, run: Run, monkeypatch: pytest.MonkeyPatch, ending: BaseException
) -> None:
    def end() -> None:
        if suspensions(loaded)[-1:] == [True]:
            loaded.running, loaded.end = (lambda: None), {}
            loaded.calls.clear()
            monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
            raise ending

    loaded.running = end
    status, _, err = run(*WORDS)
    assert status in (1, 130)
    name = loaded.made[-1]["metadata"]["name"]
    assert loaded.calls == [f"delete {name}", "annotate", "delete ConfigMaps"]
    assert suspensions(loaded)[-1] is False
    assert f"Job {name} is told to stop" in err
    assert ("stopped: 1 of 8 steps are measured and kept; speculative bench demo --show" in err) is (status == 130)
    assert not [one for one in loaded.made if one["kind"] == "ConfigMap"]


def test_a_job_that_may_not_be_made_is_not_told_to_stop(
    loaded: Loaded, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(body: Mapping[str, Any]) -> None:
        if body["kind"] == "Job":
            raise UnseenError("jobs.batch is forbidden")

    monkeypatch.setattr(loaded, "create", refuse)
    status, _, err = run(*WORDS)
    assert (status, loaded.ended) == (1, [])
    assert err.splitlines()[-1] == "error: jobs.batch is forbidden"


def test_a_job_whose_creation_is_not_answered_is_deleted(
    loaded: Loaded, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = loaded.create

    def lose(body: Mapping[str, Any]) -> None:
        create(body)
        if body["kind"] == "Job":
            raise UnseenError("the API server did not answer in time")

    monkeypatch.setattr(loaded, "create", lose)
    assert run(*WORDS)[0] == 1
    assert [one["kind"] for one in loaded.ended] == ["Job", "ConfigMap"]


def test_a_noted_step_without_figures_is_passed_over(loaded: Loaded, run: Run) -> None:
    run(*WORDS)
    noted = [
        one["metadata"]["annotations"]
        for one in loaded.made
        if names.ANNOTATION_BENCH in one["metadata"].get("annotations", {})
    ]
    noted[0][names.ANNOTATION_BENCH] = json.dumps({**json.loads(noted[0][names.ANNOTATION_BENCH]), "values": None})
    assert run("bench", "demo", "--show")[0] == 0


def test_pods_that_draft_in_a_step_without_drafts_make_no_result(loaded: Loaded, run: Run) -> None:
    drafts = loaded.drafts

    def drafts_again(pod: Mapping[str, Any]) -> bool:
        return len(loaded.made) > 3 or drafts(pod)  # prompts, warm-up, with, without; then without again

    loaded.drafts = drafts_again  # type: ignore[method-assign]
    status, _, err = run(*WORDS)
    assert status == 1
    assert "drafted" in err
    _, out, _ = run("bench", "demo", "--show", "-o", "json")
    assert [len(one["plain"]) for one in json.loads(out)["rungs"]] == [1]


UNPULLED = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "x"}}}]}
REFUSED = {"containerStatuses": [{"state": {"terminated": {"exitCode": 1}}}], "phase": "Failed"}


@pytest.mark.parametrize(
    ("pod", "told", "remedy"),
    [(UNPULLED, "Pull", "--image"), (REFUSED, "401", "--api-key-secret"), (None, "exceeded quota", "quota raised")],
)
def test_a_job_that_does_not_run_is_told_with_a_remedy(
    loaded: Loaded, run: Run, monkeypatch: pytest.MonkeyPatch, pod: dict[str, Any] | None, told: str, remedy: str
) -> None:
    failed = bool(pod and pod.get("phase") == "Failed")
    loaded.end = {"conditions": [{"type": "Failed", "status": "True"}]} if failed else {}
    body = {"metadata": {"name": "p", "namespace": "models"}, "spec": {}, "status": {"phase": "Pending", **(pod or {})}}
    pods = [body] if pod else []
    monkeypatch.setattr(loaded, "pods_of_job", lambda name: pods)
    monkeypatch.setattr(loaded, "log", lambda pod: "Traceback\nClient error '401 Unauthorized'\n")
    monkeypatch.setattr(bench_jobs, "PATIENCE_SECONDS", -1.0)
    status, _, err = run(*WORDS)
    assert status == 1
    assert told in err
    assert remedy in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rates", "1,x"), "--rates is '1,x'"),
        (("--rates", "nan"), "--rates is 'nan'"),
        (("--seconds", "900"), "--seconds is 900"),
        (("--api-key-secret", "login"), "write NAME:KEY"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_made(
    loaded: Loaded, run: Run, words: tuple[str, ...], said: str
) -> None:
    status, _, err = run(*WORDS, *words)
    assert (status, loaded.made) == (2, [])
    assert said in err


def test_drafts_that_cannot_be_suspended_name_the_other_way(loaded: Loaded, run: Run) -> None:
    assert loaded.body is not None
    loaded.body["status"]["speculation"]["actuator"] = "Restart"
    status, _, err = run(*WORDS)
    assert status == 1
    assert "--against OTHER" in err


def test_a_second_bench_of_an_object_is_refused(loaded: Loaded, run: Run) -> None:
    loaded.made.append({"kind": "Job", "metadata": {"name": "job-0"}})
    loaded.end = {}
    status, _, err = run(*WORDS)
    assert status == 1
    assert "a bench of demo runs already" in err
    assert loaded.ended == []
