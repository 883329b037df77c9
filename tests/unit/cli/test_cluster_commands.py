"""What the commands that look at a cluster say of objects, as the operator writes their status."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml
from tests.unit.reconcile.objects import SPECS, left

from speculative_operator.cli import annotate, explain, get, main, status
from speculative_operator.cli.cluster import Cluster
from speculative_operator.cli.commands import CommandError, UnseenError
from speculative_operator.domain import names
from speculative_operator.reconcile.snapshot.notes import put_in

NOW = 1_800_001_600.0
"""Unix seconds, 08:26:40 of the day of the objects."""
NAMES = sorted(SPECS)


def stored(name: str, /, **meta: Any) -> dict[str, Any]:
    """An object as the operator has left it, with its notes."""
    found = left(name)
    told = put_in(found["status"], found["notes"])
    return {
        "metadata": {"name": "demo", "namespace": "models", **meta}, "spec": found["spec"], "status": told,
    }  # fmt: skip


def shown(body: dict[str, Any], pods: Sequence[dict[str, Any]] = (), now: float = NOW) -> list[str]:
    """The lines of `status`, without what shows the depth."""
    return [line.strip() for line in status.view(body, pods, now)]


class FakeCluster:
    """A cluster with one object, or with what a test says."""

    namespace = "models"

    def __init__(
        self,
        body: dict[str, Any] | None = None,
        listed: Mapping[str, list[Any]] | None = None,
        forbidden: Sequence[str] = (),
    ) -> None:
        self.body, self.known, self.forbidden = body, listed or {}, forbidden
        self.written: list[tuple[str, str, str | None]] = []
        self.serving: list[dict[str, Any]] = []
        self.pages: dict[str, str] = {}
        self.lacking: set[tuple[str, str]] = set()
        self.asked: list[tuple[str, ...]] = []
        self.silent: float | None = None
        self.labels = ""

    def __call__(self, _: argparse.Namespace) -> FakeCluster:
        return self

    def object(self, name: str) -> dict[str, Any]:
        assert self.body is not None
        return {**self.body, "metadata": {**self.body["metadata"], "name": name}}

    def object_with_notes(self, name: str) -> dict[str, Any]:
        return self.object(name)

    def pods(self, name: str) -> list[dict[str, Any]]:
        return self.serving

    def objects(self, *, everywhere: bool = False, labels: str = "") -> list[dict[str, Any]]:
        self.labels = labels
        self.refuse(names.PLURAL if everywhere else "own")
        return [self.body] if self.body else []

    def operator_silent(self, now: float) -> float | None:
        return self.silent

    def annotate(self, name: str, annotation: str, value: str | None) -> None:
        self.written.append((name, annotation, value))

    def list_objects(self, _: str, plural: str, **selectors: str) -> list[Any]:
        self.refuse(plural)
        return self.known.get(plural, [])

    def nodes(self) -> list[Any]:
        return self.list_objects("v1", "nodes")

    def every_pod(self, **selectors: str) -> list[Any]:
        of_operator = "label_selector" in selectors
        return (
            self.list_objects("v1", "operator pods")
            if of_operator
            else [*self.list_objects("v1", "pods"), *self.serving]
        )

    def page(self, pod: Mapping[str, Any], port: str, path: str) -> str:
        name = pod["metadata"]["name"]
        self.refuse(f"page of {name}")
        return self.pages[f"{name}:{port}/{path.lstrip('/')}"]

    def may(self, user: str, namespace: str, verb: str, resource: str, group: str) -> bool:
        self.refuse("subjectaccessreviews")
        self.asked.append((user, namespace, verb, resource, group))
        return (verb, resource) not in self.lacking

    def refuse(self, plural: str) -> None:
        if plural in self.forbidden:
            raise UnseenError(f"you cannot list {plural}")


@pytest.mark.parametrize("name", NAMES)
def test_every_stored_object_can_be_shown_and_explained(name: str) -> None:
    body = stored(name)
    assert "\n".join(shown(body)).startswith("demo in models: ready (AllReady), mode ")
    assert "\n".join(explain.explanation(body)).startswith("demo in models: K is ")
    assert len(get.row(body)) == len(get._HEADERS)
    assert len(get.row(body, wide=True)) == len((*get._HEADERS, *get._WIDE))
    assert "None" not in " ".join((*shown(body), *explain.explanation(body), *get.row(body)))


def test_ready_counts_as_status_does() -> None:
    """Another writer may scale the Deployment."""
    body = stored("tuned")
    assert get.row(body)[2] == "2/2"
    body["status"]["ready"] = "1/5"
    assert get.row(body)[2] == "1/5"
    assert "pods        1 of 5 ready" in shown(body)


def test_an_object_that_nobody_has_looked_at() -> None:
    body = {"metadata": {"name": "new", "namespace": "models"}, "spec": {"verifier": {"model": "hf://a/b"}}}
    assert shown(body) == [
        "new in models: the operator has not looked at it yet, mode Auto",
        "pair",
        "verifier    hf://a/b",
        "pods        0 of 1 ready",
    ]


class TestStatus:
    def test_the_table_says_where_the_load_is(self) -> None:
        body = stored("tuned")
        body["status"]["speculation"] |= {"table": [[1, 8, 4], [9, 64, 1]], "concurrency": "11.7"}
        lines = shown(body)
        (here,) = (line for line in lines if "<- load now" in line)
        assert here.split() == ["9-64", "requests", "K", "1", "█" * 6, "<-", "load", "now"]
        assert "table  version 6, 11.7 requests a step and pod now" in lines
        assert any(line.split()[:4] == ["1-8", "requests", "K", "4"] for line in lines)

    def test_what_a_pod_says_gives_no_orders_to_the_terminal(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        body = stored("tuned")
        body["status"]["warnings"] = [{"reason": "X", "message": "a\x1b]0;owned\x07\x1b[2Jb"}]
        body["status"]["speculation"]["k"] = "\x1b[2J1"
        for module, words in ((status, ["status", "demo"]), (explain, ["explain", "demo"]), (get, ["get"])):
            monkeypatch.setattr(module, "Cluster", FakeCluster(body))
            assert main.main(words) == 0
        assert "\x1b" not in capsys.readouterr().out

    @pytest.mark.parametrize("command", [["status", "demo"], ["get"], ["explain", "demo"]])
    def test_programs_get_json_and_yaml(
        self, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for module in (status, explain, get):
            monkeypatch.setattr(module, "Cluster", FakeCluster(stored("tuned")))
        assert main.main([*command, "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert main.main([*command, "-o", "yaml"]) == 0
        assert list(yaml.safe_load_all(capsys.readouterr().out)) == [found]
        assert main.main([*command, "-o", "wide"]) == 0
        assert "demo" in capsys.readouterr().out

    @pytest.mark.parametrize("concurrency", ["nan", "inf", "-1", "", "many"])
    def test_a_load_that_is_none_breaks_nothing(self, concurrency: str) -> None:
        body = stored("tuned")
        body["status"]["speculation"]["concurrency"] = concurrency
        assert not any("NaN" in line for line in shown(body))

    @pytest.mark.parametrize("table", [None, [], "x", [[1, 2]], [[1, 64, 0]]])
    def test_a_table_of_another_form_breaks_nothing(self, table: Any) -> None:
        body = stored("tuned")
        body["status"]["speculation"] |= {"table": table, "concurrency": "many"}
        assert shown(body)

    def test_a_proposal_comes_with_its_command(self) -> None:
        lines = shown(stored("proposal"))
        assert "next  speculative approve demo -n models" in lines

    def test_what_is_wrong_is_what_it_waits_for(self) -> None:
        body = stored("tuned")
        metrics = next(one for one in body["status"]["conditions"] if one["type"] == "MetricsAvailable")
        metrics |= {"status": "False", "reason": "MetricsMissing", "message": "no samples of demo-1"}
        lines = "\n".join(shown(body))
        assert "waits  MetricsAvailable MetricsMissing: no samples of demo-1" in lines
        assert "Prometheus has no samples of a ready pod" in "\n".join(explain.explanation(body))

    def test_each_pod_is_shown_with_its_age_k_and_table(self) -> None:
        body = stored("tuned")

        def since(at: str) -> dict[str, Any]:
            return {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": f"2027-01-15T{at}Z"}],
            }

        waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
        pending = {"phase": "Pending", "containerStatuses": [waiting]}
        pods: list[dict[str, Any]] = [
            {
                "metadata": {"name": "demo-1", "annotations": {names.ANNOTATION_POKE: "6-b"}},
                "status": since("08:26:00"),
            },
            {"metadata": {"name": "demo-2", "annotations": {names.ANNOTATION_POKE: "4"}}, "status": since("05:26:00")},
            {"metadata": {"name": "demo-33", "creationTimestamp": "2027-01-15T08:13:00Z"}, "status": pending},
        ]
        lines = shown(body, pods)
        first = lines.index("pods        2 of 2 ready") + 1
        assert lines[first : first + 3] == [
            "demo-1   40s  ready  K 1  table 6",
            "demo-2   3h  ready  K 3  table 4, not yet 6",
            "demo-33  13m  ImagePullBackOff: no such image",
        ]

    def test_a_tree_is_indented(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(status, "Cluster", FakeCluster(stored("tuned")))
        assert main.main(["status", "demo"]) == 0
        assert "\n  pair  eagle3\n    verifier    hf://" in capsys.readouterr().out

    def test_no_color_is_no_order_to_the_terminal(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr(status, "Cluster", FakeCluster(stored("tuned")))
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        assert main.main(["status", "demo"]) == 0
        assert "\x1b" not in capsys.readouterr().out

    @pytest.mark.parametrize("terminal", [True, False])
    def test_a_terminal_is_drawn_anew_and_a_pipe_is_not(
        self, terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A terminal with each look, for the time and the ages on it; a pipe when something else has changed."""
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.delenv("NO_COLOR", raising=False)
        body, clock = stored("tuned"), [NOW]

        def look(seconds: float) -> None:
            clock[0] += seconds
            if clock[0] > NOW + 3 * status.WATCH_SECONDS:
                raise KeyboardInterrupt
            if clock[0] > NOW + 2 * status.WATCH_SECONDS:
                body["status"] |= {"readyReplicas": 1, "ready": "1/2"}

        monkeypatch.setattr(status, "Cluster", FakeCluster(body))
        monkeypatch.setattr("speculative_operator.cli.status.time.sleep", look)
        monkeypatch.setattr("speculative_operator.cli.status.time.time", lambda: clock[0])
        monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
        assert main.main(["status", "demo", "-w"]) == 130
        out = capsys.readouterr().out
        assert out.count(status.CLEAR) == (4 if terminal else 0)
        assert re.findall(r"mode Auto, 2027-01-15 (\S+) UTC", re.sub(r"\x1b\[[0-9;]*m", "", out)) == (
            ["08:26:40", "08:26:42", "08:26:44", "08:26:46"] if terminal else ["08:26:40", "08:26:46"]
        )
        assert "1 of 2 ready" in out
        assert ("\x1b[32m" in out) is terminal, "the bar is green on a terminal"


class TestModes:
    @pytest.mark.parametrize(
        ("name", "annotations", "said"),
        [
            ("off", {}, "without a speculator"),
            ("recommended", {}, "changes nothing"),
            ("schedule", {}, "The spec says K"),
            ("tuned", {names.ANNOTATION_PAUSED: "true"}, "speculative resume"),
        ],
    )
    def test_it_is_said_who_chooses_k(self, name: str, annotations: dict[str, str], said: str) -> None:
        assert said in "\n".join(explain.explanation(stored(name, annotations=annotations)))


class TestAnnotate:
    @pytest.mark.parametrize(
        ("command", "annotation", "value"),
        [
            ("pause", names.ANNOTATION_PAUSED, "true"),
            ("resume", names.ANNOTATION_PAUSED, None),
            ("adopt", names.ANNOTATION_ADOPT, "20"),
            ("repin", names.ANNOTATION_REPIN, "20"),
        ],
    )
    def test_one_annotation_is_written(
        self, monkeypatch: pytest.MonkeyPatch, command: str, annotation: str, value: str | None
    ) -> None:
        cluster = FakeCluster(stored("tuned"))
        monkeypatch.setattr(annotate, "Cluster", cluster)
        assert main.main([command, "demo", "-n", "models"]) == 0
        ((name, written, said),) = cluster.written
        assert (name, written) == ("demo", annotation)
        assert said == value or (said or "").startswith(value or "-")

    @pytest.mark.parametrize(
        ("words", "written"), [(["a", "b"], ["a", "b"]), (["--all"], ["demo"]), (["-l", "team=chat"], ["demo"])]
    )
    def test_several_objects_are_named_or_chosen(
        self, monkeypatch: pytest.MonkeyPatch, words: list[str], written: list[str]
    ) -> None:
        cluster = FakeCluster(stored("tuned"))
        monkeypatch.setattr(annotate, "Cluster", cluster)
        assert main.main(["pause", *words]) == 0
        assert [name for name, *_ in cluster.written] == written
        assert cluster.labels == ("team=chat" if words[0] == "-l" else "")

    @pytest.mark.parametrize("words", [[], ["a", "--all"], ["--all", "-l", "team=chat"]])
    def test_no_object_is_changed_by_a_slip(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
    ) -> None:
        cluster = FakeCluster(stored("tuned"))
        monkeypatch.setattr(annotate, "Cluster", cluster)
        assert main.main(["pause", *words]) == 2
        assert cluster.written == []
        assert "give names, or --all, or -l LABELS" in capsys.readouterr().err

    def test_the_proposal_that_stands_is_approved_and_no_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        body = stored("proposal")
        cluster = FakeCluster(body)
        monkeypatch.setattr(annotate, "Cluster", cluster)
        assert main.main(["approve", "demo"]) == 0
        assert cluster.written == [("demo", names.ANNOTATION_ACCEPT, body["status"]["rollout"]["proposal"]["accept"])]

    def test_without_a_proposal_nothing_is_written(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster = FakeCluster(stored("tuned"))
        monkeypatch.setattr(annotate, "Cluster", cluster)
        assert main.main(["approve", "demo"]) == 1
        assert cluster.written == []
        assert capsys.readouterr().err == "error: the operator proposes no rollout of demo, and no canary waits\n"

    def test_a_canary_that_has_passed_all_steps_is_approved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        body = stored("tuned")
        body["status"]["canary"] = {"accept": "0a1b2c3d", "message": "next has passed all steps"}
        cluster = FakeCluster(body)
        monkeypatch.setattr(annotate, "Cluster", cluster)
        assert main.main(["approve", "demo"]) == 0
        assert cluster.written == [("demo", names.ANNOTATION_ACCEPT, "0a1b2c3d")]


def test_a_kubeconfig_that_cannot_be_used_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(CommandError, match="name one in KUBECONFIG"):
        Cluster(argparse.Namespace(context="", namespace=""))
    assert main.main(["get"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
