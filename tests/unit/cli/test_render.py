"""`speculative render`: the operator's own manifests, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.golden.case import INPUTS, whole
from tests.golden.test_manifests import shown

from speculative_operator.cli.main import main
from speculative_operator.domain import names
from speculative_operator.render.targets import target_of

FOLDER = Path(__file__).resolve().parents[3] / "examples"
EXAMPLES = sorted(one for one in FOLDER.rglob("*.yaml") if f"\nkind: {names.KIND}\n" in one.read_text())
PLAIN = {"apiVersion": names.API_VERSION, "kind": names.KIND}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, object]], str]:
    status = main(["render", *words])
    out, err = capsys.readouterr()
    return status, list(yaml.safe_load_all(out)), err


def test_every_example_is_rendered(capsys: pytest.CaptureFixture[str]) -> None:
    for path in EXAMPLES:
        status, found, err = run(capsys, str(path), "--image", "operator:1")
        assert status == 0, err
        assert found, path
        assert all(one["kind"] and "ownerReferences" not in one["metadata"] for one in found)  # type: ignore[operator]
        assert err.startswith("# in a cluster the operator owns these objects"), path


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_the_workload_is_the_operators_own(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pods as the golden manifests have them, but for what a case's own table and versions decide."""
    case = whole(path)
    if "table" not in case.more or case.spec.weights.cache is not None:
        pytest.skip("this case is made of more than its spec")
    file = tmp_path / "object.yaml"
    file.write_text(yaml.safe_dump({**PLAIN, **case.body}))
    kind = target_of(case.spec).kind
    status, found, err = run(capsys, str(file), "-n", "models", "--only", kind.lower())
    assert status == 0, err
    (workload,) = found
    expected = next(shown(one) for one in case.children() if one["kind"] == kind)
    assert case.container.image in str(expected)
    assert case.container.image in str(workload)
    assert workload["metadata"]["name"] == expected["metadata"]["name"]  # type: ignore[index]


def test_what_a_job_must_find_first_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    path = next(one for one in EXAMPLES if one.name == "node.yaml")
    status, found, err = run(capsys, str(path), "--image", "operator:1")
    assert (status, [one["kind"] for one in found]) == (0, ["Job"])
    assert "the pods' manifests follow when this Job has fetched the models" in err


def test_what_the_operator_refuses_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    path = next(one for one in EXAMPLES if one.name == "node.yaml")
    assert main(["render", str(path)]) == 1
    err = capsys.readouterr().err
    assert "the operator would create nothing: UnsupportedSource" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spec: {verifer: {model: hf://a/b}}", "spec.verifer"),
        ("a: b: c", "is not YAML"),
        ("a: 1\n---\nb: 2\n", "is not YAML"),
        ("{}", "spec is {}: it is empty"),
        ("spec: {verifier: {model: 'hf://a/b'}, speculation: {mode: Off}}", "'Disabled'"),
    ],
)
def test_a_file_that_is_wrong_is_wrong_use(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "object.yaml"
    file.write_text(text)
    assert main(["render", str(file)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_kind_that_is_not_made_names_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", str(EXAMPLES[0]), "--only", "Secret"]) == 2
    assert "use one of ConfigMap, Deployment, Service" in capsys.readouterr().err
