"""Files made from the code: none differs from it, and what each must hold is in it."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from generate import __main__ as generate
from generate import manifests, pages, rbac
from generate.chart import table, values_schema, values_yaml
from generate.values import Values
from speculative_operator.api.v1alpha1 import Spec
from speculative_operator.domain import names
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.reconcile.children.plan import DELETED
from speculative_operator.settings import PREFIX, Settings
from speculative_operator.shell import resources

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "speculative-operator"


@pytest.mark.parametrize("path", generate.files())
def test_no_drift(path: str) -> None:
    assert generate.drift({path: generate.files()[path]}, ROOT) == [], "run: make generate"


def test_check_fails_on_drift_and_writing_mends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check", "--root", str(tmp_path)]) == 1
    assert not list(tmp_path.iterdir())
    assert generate.main(["--root", str(tmp_path)]) == 0
    assert generate.main(["--check", "--root", str(tmp_path)]) == 0
    (tmp_path / "docs" / "api.md").write_text("edited by hand")
    capsys.readouterr()
    assert generate.main(["--check", "--root", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "differs: docs/api.md\n"


@pytest.mark.parametrize("marks", ["", "begin", "end\nbegin", "begin end begin end", "begin end end"])
def test_a_page_needs_its_two_marks_once_and_in_order(marks: str) -> None:
    with pytest.raises(ValueError, match="the page needs one line begin and, below it, one line end"):
        pages.placed(f"# Engines\n{marks}\n", "begin", "table", "end")
    assert pages.placed("before begin old end after", "begin", "table", "end") == "before table after"


def test_a_page_without_its_marks_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "_page", lambda name: f"# {name}, without marks\n")
    assert generate.main(["--root", str(tmp_path)]) == 2
    assert "needs one line" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_command_line() -> None:
    command = [sys.executable, "-m", "generate", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")


def test_chart_carries_the_definition() -> None:
    crd = yaml.safe_load((ROOT / "crds" / f"{names.PLURAL}.{names.GROUP}.yaml").read_text())
    kept = yaml.safe_load((CHART / "files" / "crd.yaml").read_text())
    assert kept["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert kept == crd


# -- chart values


def test_values_are_documented_and_valid() -> None:
    values = yaml.safe_load(values_yaml())
    assert Values.model_validate(values) == Values()
    lines = (CHART / "values.yaml").read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        if re.match(r"\s*\w+:", line):
            assert before.strip().startswith("#"), f"{line} has no comment"


def test_values_schema_refuses_unknown_values() -> None:
    """But for what Kubernetes or a chart around this one may add to."""
    schema = values_schema()
    objects = {"": schema, "settings": schema["properties"]["settings"], **schema["$defs"]}
    open_ones = [name for name, node in objects.items() if node["additionalProperties"] is not False]
    assert sorted(open_ones) == ["Global", "PodSecurityContext", "SecurityContext"]
    assert objects["settings"]["properties"].keys() == {name.upper() for name in Settings.model_fields}


def test_the_table_of_the_readme_has_every_value() -> None:
    readme = (CHART / "README.md").read_text()
    assert table(readme) == readme
    rows = [line.split(" | ")[0].removeprefix("| ") for line in readme.splitlines() if line.count(" | ") >= 3]
    for key in rows[rows.index("image.repository") :]:
        node: Any = yaml.safe_load(values_yaml())
        for part in key.split("."):
            node = node[part]
    assert {"podSecurityContext.runAsNonRoot", "global.commonLabels", "crds.keep"} <= set(rows)


def test_values_refuse_a_password_of_the_proxy() -> None:
    """Values are stored readable in the release and the Deployment."""
    assert Values.model_validate({"prometheus": {"proxy": "https://proxy.example:3128/"}})
    with pytest.raises(ValidationError, match=r"prometheus\.proxy"):
        Values.model_validate({"prometheus": {"proxy": "http://operator:secret@proxy.example:3128"}})


def test_values_default_to_the_settings() -> None:
    values, settings = Values(), Settings.model_fields
    assert values.prometheus.url == "", "what is set is asked; else the operator looks"
    assert f'default "{settings["prometheus_url"].default}"' in (CHART / "templates" / "_helpers.tpl").read_text()
    assert values.pairs.check == settings["check_pairs"].default
    assert values.tick_seconds == settings["tick_seconds"].default
    assert values.leader_election == settings["leader_election"].default
    assert values.log_level == settings["log_level"].default
    assert values.log_format == settings["log_format"].default
    assert settings["http_port"].default == 8080


def test_chart_sets_variables_that_exist() -> None:
    template = (CHART / "templates" / "deployment.yaml").read_text()
    variables = set(re.findall(rf"name: {PREFIX}(\w+)", template))
    assert variables
    assert {name.lower() for name in variables} <= set(Settings.model_fields)


def test_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{chart["version"]}"' in project
    assert chart["appVersion"] == chart["version"]


# -- permissions


def permitted(permissions: tuple[rbac.Permission, ...]) -> dict[tuple[str, str], set[str]]:
    table: dict[tuple[str, str], set[str]] = {}
    for permission in permissions:
        table.setdefault((permission.group, permission.resource), set()).update(permission.verbs)
    return table


def test_operator_may_what_the_shell_does_and_no_more() -> None:
    lasting = {"get", "list", "watch", "create", "patch"}
    wanted = {
        (kind.group, kind.plural): lasting | ({"delete"} if kind.kind in {*DELETED, "Job"} else set())
        for kind in resources.CHILDREN
    }
    wanted |= {
        (resources.OWNER.group, resources.OWNER.plural): {"list", "watch", "create", "delete"},
        (resources.OWNER.group, f"{resources.OWNER.plural}/status"): {"patch"},
        (resources.OWNER.group, f"{resources.OWNER.plural}/finalizers"): {"update"},
        (resources.TRAINING.group, resources.TRAINING.plural): {"list"},
        (resources.TRAINING.group, f"{resources.TRAINING.plural}/status"): {"patch"},
        (resources.TRAINING.group, f"{resources.TRAINING.plural}/finalizers"): {"update"},
        (resources.POD.group, resources.POD.plural): {"list", "watch", "patch"},
        (resources.POD.group, f"{resources.POD.plural}/log"): {"get"},
        (resources.EVENT.group, resources.EVENT.plural): {"create"},
        **{(one.group, one.plural): {"list"} for one in (resources.REPLICA_SET, resources.STATEFUL_SET)},
    }
    assert permitted(rbac.OPERATOR) == wanted
    lease = (resources.LEASE.group, resources.LEASE.plural)
    assert permitted(rbac.leader("x")) == {lease: {"create", "get", "update"}}


def test_no_wildcards() -> None:
    """In what is permitted; what the admission policy looks at is every version of a kind."""
    rules: list[dict[str, Any]] = [rule for group in rbac.chart_rules().values() for rule in group if "verbs" in rule]
    assert len(rules) > 10
    assert "*" not in json.dumps(rules)


def test_users_never_write_status() -> None:
    for permissions in rbac.USERS.values():
        assert permitted(permissions)[names.GROUP, f"{names.PLURAL}/status"] == {"get"}


# -- references


def test_reasons_are_all_listed() -> None:
    text = (ROOT / "docs" / "reasons.md").read_text()
    for word in (*Reason, *ConditionType):
        assert f"`{word}`" in text


def test_api_reference_lists_fields() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    for field in Spec.model_fields.values():
        assert f"- `{field.alias}` (" in text


# -- the manifest made from the chart

RENDERED = """
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, labels: {helm.sh/chart: x, app.kubernetes.io/managed-by: Helm, app: a}}
---
apiVersion: v1
kind: CustomResourceDefinition
metadata: {name: c, annotations: {helm.sh/resource-policy: keep}}
---
"""


def test_install_takes_off_the_marks_of_helm() -> None:
    documents = list(yaml.safe_load_all(manifests.install(RENDERED)))
    assert [item["kind"] for item in documents] == ["Namespace", "CustomResourceDefinition", "Deployment"]
    namespace, definition, deployment = documents
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert definition["metadata"] == {"name": "c"}
    assert deployment["metadata"]["labels"] == {"app": "a"}


@pytest.mark.parametrize("text", ["", "just words", "- 1\n- 2", RENDERED])
def test_install_refuses_what_is_no_chart(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "rendered"
    source.write_text(text)
    assert generate.main(["--install", str(source), "--root", str(tmp_path)]) == 2
    assert "helm template" in capsys.readouterr().err


def test_install_and_bundle_are_written_from_standard_input(tmp_path: Path) -> None:
    """What is written here anew is what lies in the repository."""
    objects = yaml.safe_load_all((ROOT / generate.INSTALL).read_text())
    rendered = yaml.safe_dump_all((item for item in objects if item["kind"] != "Namespace"), sort_keys=False)
    command = [sys.executable, "-m", "generate", "--install", "-", "--root", str(tmp_path)]
    subprocess.run(command, input=rendered, text=True, check=True, capture_output=True, cwd=ROOT)
    bundle = [path.relative_to(ROOT) for path in (ROOT / "manifests" / "olm").rglob("*") if path.is_file()]
    assert len(bundle) > 6
    for path in (Path(generate.INSTALL), *bundle):
        assert (tmp_path / path).read_text() == (ROOT / path).read_text(), "run: make generate"
