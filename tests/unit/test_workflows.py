"""The workflows were never run from here. What can be held is that they name what there is: targets, files, jobs,
commands; that they ask for no more than they need; and that everything that bears a version bears the same."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from release import __main__ as release
from release import address, publish, versions
from speculative_operator import __version__

ROOT = Path(__file__).resolve().parents[2]
INSTALL = ROOT / "manifests" / "install.yaml"
CHART = ROOT / "charts" / "speculative-operator"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["jobs"]
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs(path).values() for step in job.get("steps", ())]


def scripts(path: Path) -> str:
    return "\n".join(step["run"] for step in steps(path) if "run" in step)


def test_a_night_does_all_that_it_names() -> None:
    (job,) = jobs(ROOT / ".github" / "workflows" / "nightly.yaml").values()
    done = [step["if"].removeprefix("matrix.work == ").strip("'") for step in job["steps"] if "if" in step]
    assert done == job["strategy"]["matrix"]["work"]


@every_workflow
def test_targets_commands_and_files_exist(path: Path) -> None:
    text = scripts(path)
    named = re.findall(r"\bmake ([a-z0-9-]+)", text)
    assert named
    assert set(named) - TARGETS == set()
    commands = re.findall(r"-m release (\w+)", text)
    assert set(commands) <= {"version"}, "the rest has its target"
    for file in re.findall(r"hashFiles\(([^)]*)\)", path.read_text()):
        for pattern in re.findall(r"'([^']+)'", file):
            assert list(ROOT.glob(pattern)), pattern
    for folder in re.findall(r"PYTHONPATH: (\S+)", path.read_text()):
        assert all((ROOT / one).is_dir() for one in folder.split(":"))


def test_every_target_runs_tests_that_exist() -> None:
    named = set(re.findall(r"\btests(?:/[\w.-]+)+", MAKEFILE))
    assert len(named) > 8
    assert [path for path in named if not (ROOT / path).exists()] == []


@every_workflow
def test_jobs_wait_for_jobs_that_exist_and_have_a_limit(path: Path) -> None:
    found = jobs(path)
    for name, job in found.items():
        assert set([job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", ())) <= set(found), name
        if "uses" in job:
            assert (ROOT / job["uses"].removeprefix("./")).is_file()
            assert "workflow_call" in yaml.safe_load((ROOT / job["uses"]).read_text())[True], "YAML reads `on` as true"
        else:
            assert job["timeout-minutes"] <= 90
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}, "each job asks for more itself"


def test_nothing_of_outside_is_put_into_a_script() -> None:
    """A tag's or branch's name is text of whoever pushes it: scripts read it from a variable."""
    assert [path.stem for path in WORKFLOWS if "${{" in scripts(path)] == []


def test_nothing_is_published_before_it_was_scanned() -> None:
    """Not even a login: a step that scans what was pushed leaves it there when it fails."""
    every = steps(ROOT / ".github" / "workflows" / "release.yaml")
    scan = next(number for number, step in enumerate(every) if "$GRYPE" in step.get("run", ""))
    pushing = re.compile(r"--push|\bpush\b|\boras cp\b|\bcosign\b|gh release|upload-|publish@")
    before = [
        step
        for step in every[:scan]
        if pushing.search(step.get("run", "")) or re.search(r"login|upload-|publish", step.get("uses", ""))
    ]
    assert before == []
    scanned = re.findall(r"for target in (.*); do", every[scan]["run"])[0].split()
    assert set(scanned) == release.IMAGES.keys()
    taken = r'oras cp --from-oci-layout "build/release/\$target\.oci\.tar:\$version".*--to-oci-layout'
    assert len(re.findall(r"\boras cp\b", every[scan]["run"])) == len(re.findall(taken, every[scan]["run"], re.DOTALL))
    (built,) = re.findall(r"make image .*--platform (\S+)\"", scripts(ROOT / ".github" / "workflows" / "release.yaml"))
    (arches,) = re.findall(r"for arch in (.*); do", every[scan]["run"])
    assert [f"linux/{arch}" for arch in arches.split()] == built.split(",")
    assert any("oras cp" in step.get("run", "") for step in every[scan:])


def test_the_trainers_image_is_scanned_before_it_is_pushed_and_signed() -> None:
    every = jobs(ROOT / ".github" / "workflows" / "release.yaml")["trainer"]["steps"]
    marks = ("--trainer", "$GRYPE", "oras cp", "cosign sign")
    places = [next(at for at, step in enumerate(every) if mark in step.get("run", "")) for mark in marks]
    login = next(at for at, step in enumerate(every) if "login" in step.get("uses", ""))
    assert places[0] < places[1] < login < places[2] == places[3]
    assert "trainer.cdx.json" in every[places[1]]["run"]


def test_a_tag_publishes_all_that_a_user_installs() -> None:
    path = ROOT / ".github" / "workflows" / "release.yaml"
    used = " ".join(step.get("uses", "") for step in steps(path))
    for one in (
        "oras cp",
        "helm push",
        "docker buildx build --push",
        "build/release/speculative.yaml",
        "make docs-check",
    ):
        assert one in scripts(path), one
    assert {"pypi-publish", "deploy-pages"} <= set(re.findall(r"pypi-publish|deploy-pages", used))
    assert all(jobs(path)[later]["needs"] == "publish" for later in ("wheel", "site")), "after the scan"


def test_the_address_is_written_once_and_reaches_all_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(address.VARIABLE, raising=False)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    assert release.main(["address", "https://git.example"]) == 2
    for url in (HOME, f"{HOME}-2"):
        assert release.main(["address", url]) == 0
        assert address.repository(tmp_path) == url
        readme = (tmp_path / "README.md").read_text()
        assert (readme.count("badge.svg"), readme.count(f"]({url}/releases)")) == (1, 1)
        assert readme.split("badge.svg")[0].count("\n") == 2, "under the title"
    assert (tmp_path / "pyproject.toml").read_text().count("[project.urls]") == 1
    monkeypatch.setenv(address.VARIABLE, "https://git.example/fork/operator/")
    assert address.files_of(address.repository(tmp_path), "1.2.3") == (
        "https://git.example/fork/operator/releases/download/v1.2.3"
    )
    about = publish.with_home((CHART / "Chart.yaml").read_text(), URL, "ghcr.io/me/", DIGEST)
    chart = yaml.safe_load(about)
    assert (chart["home"], chart["sources"], chart["icon"].startswith(HOME)) == (HOME, [HOME], True)


def test_without_an_address_nothing_links_to_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(address.VARIABLE, raising=False)
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert address.files_of(address.repository(tmp_path), "1.2.3") == ""
    set_here = address.repository(ROOT)
    for path in (CHART / "Chart.yaml", ROOT / "mkdocs.yml", ROOT / "Dockerfile"):
        found = re.findall(r"https://\S+/\S+/speculative-operator", path.read_text())
        assert [one for one in found if one != set_here] == [], path


def test_everything_bears_one_version() -> None:
    (csv,) = (ROOT / "manifests" / "olm" / "manifests").glob("*.clusterserviceversion.yaml")
    found = [
        *versions.list_versions(ROOT),
        ("package", __version__),
        ("bundle", yaml.safe_load(csv.read_text())["spec"]["version"]),
        *(("install", one) for one in re.findall(r"speculative-operator:(\d+\.\d+\.\d+)", INSTALL.read_text())),
    ]
    assert {path for path, _ in found} >= {path for path in versions.PATTERNS if "*" not in path}
    assert len(found) > 12
    (own,) = [version for path, version in found if path == versions.SOURCE]
    assert [one for one in found if one[1] != own] == []


def test_one_command_changes_the_version_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(versions.list_versions(ROOT))
    for path, _ in before:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    assert release.main(["version", "1.20.3-rc.1"]) == 0
    assert list(versions.list_versions(tmp_path)) == [(path, "1.20.3-rc.1") for path, _ in before]
    for path in {path for path, _ in before}:
        assert (tmp_path / path).read_text().replace("1.20.3-rc.1", __version__) == (ROOT / path).read_text()
    chart = yaml.safe_load((tmp_path / "charts" / "speculative-operator" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("1.20.3-rc.1", "1.20.3-rc.1")
    assert release.main(["version", "next"]) == 2


def test_a_tag_of_another_version_ends_the_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["version", "--tag", f"v{__version__}"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"
    assert release.main(["version", "--tag", "v9.9.9"]) == 2
    assert f"tag v{__version__}" in capsys.readouterr().err


# -- what a release publishes


DIGEST = f"sha256:{'a' * 64}"


def test_the_published_chart_names_the_published_image() -> None:
    values = (ROOT / "charts" / "speculative-operator" / "values.yaml").read_text()
    image = yaml.safe_load(publish.with_image(values, "ghcr.io/me/", DIGEST))["image"]
    assert (image["repository"], image["digest"]) == ("ghcr.io/me/speculative-operator", DIGEST)
    assert yaml.safe_load(publish.with_image(values, "ghcr.io/me/", ""))["image"]["digest"] == ""
    with pytest.raises(publish.PublishError, match=r"no empty image\.repository"):
        publish.with_image("image:\n  repository: other\n", "ghcr.io/me/", "")


URL = f"https://git.example/me/operator/releases/download/v{__version__}"
HOME = "https://git.example/me/operator"


def test_the_published_bundle_links_to_the_project(tmp_path: Path) -> None:
    publish.write_bundle(ROOT, tmp_path, "ghcr.io/me/", DIGEST, URL)
    (csv,) = (tmp_path / "olm" / "manifests").glob("*.clusterserviceversion.yaml")
    spec = yaml.safe_load(csv.read_text())["spec"]
    assert [one["url"] for one in spec["links"] if not one["url"].startswith(HOME)] == []
    assert (spec["provider"]["url"], len(spec["links"])) == (HOME, 2)
    with pytest.raises(publish.PublishError, match="--url is 'http"):
        publish.write_bundle(ROOT, tmp_path, "ghcr.io/me/", "", "http://git.example")


@pytest.mark.parametrize(("digest", "reference"), [(DIGEST, f"@{DIGEST}"), ("", f":{__version__}")])
def test_the_published_bundle_names_it_too(tmp_path: Path, digest: str, reference: str) -> None:
    publish.write_bundle(ROOT, tmp_path, "ghcr.io/me/", digest)
    (csv,) = (tmp_path / "olm" / "manifests").glob("*.clusterserviceversion.yaml")
    text = csv.read_text()
    assert text.count(f"ghcr.io/me/speculative-operator{reference}") == 4
    assert not re.search(r"(?<!/)speculative-operator:\d", text)
    assert yaml.safe_load(text)["metadata"]["name"] == f"speculative-operator.v{__version__}"


def test_a_registry_is_needed(tmp_path: Path) -> None:
    with pytest.raises(publish.PublishError, match=r"ghcr\.io/OWNER/"):
        publish.write_bundle(ROOT, tmp_path, "", "")
