"""The plug-in for krew: its manifest by krew's own rules, its archive, and what starts the program."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.__main__ import ReleaseError, krew
from release.krew import write_plugin

ROOT = Path(__file__).resolve().parents[2]
URL = "https://github.com/example/speculative-operator/releases/download/v1.2.3"


@pytest.fixture
def plugin(tmp_path: Path) -> tuple[dict[str, Any], Path]:
    wheel = tmp_path / "speculative_operator-1.2.3-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    manifest = write_plugin(ROOT, wheel, tmp_path / "out", URL, "1.2.3", "https://github.com/example/operator")
    return yaml.safe_load(manifest.read_text()), manifest.parent / "kubectl-speculative-1.2.3.tar.gz"


def test_the_manifest_keeps_the_rules_of_krew(plugin: tuple[dict[str, Any], Path]) -> None:
    """What `validate-krew-manifest` checks, as krew's developer guide names it."""
    manifest, archive = plugin
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[a-z0-9-]+", manifest["metadata"]["name"])
    spec = manifest["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    assert not spec["shortDescription"].endswith(".")
    assert spec["description"]
    assert spec["homepage"].startswith("https://")
    assert [one["selector"]["matchLabels"]["os"] for one in spec["platforms"]] == ["linux", "darwin"]
    for one in spec["platforms"]:
        assert one["uri"] == f"{URL}/{archive.name}"
        assert one["sha256"] == sha256(archive.read_bytes()).hexdigest()


def test_the_archive_has_the_program_and_the_licence(plugin: tuple[dict[str, Any], Path]) -> None:
    manifest, archive = plugin
    with tarfile.open(archive) as tar:
        modes = {one.name: one.mode for one in tar}
    assert modes.keys() == {"kubectl-speculative", "LICENSE", "speculative_operator-1.2.3-py3-none-any.whl"}
    assert {one["bin"] for one in manifest["spec"]["platforms"]} <= modes.keys()
    assert modes["kubectl-speculative"] & 0o111


@pytest.mark.parametrize(
    ("runner", "words"),
    [("uv", "tool run --quiet --from {} kubectl-speculative get -A"),
     ("pipx", "run --spec {} kubectl-speculative get -A")],
)  # fmt: skip
def test_it_is_started_through_the_link_that_krew_makes(
    runner: str, words: str, plugin: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    store, tools = tmp_path / "store", tmp_path / "tools"
    with tarfile.open(plugin[1]) as tar:
        tar.extractall(store, filter="data")
    tools.mkdir()
    (tools / runner).write_text('#!/bin/sh\necho "$@"\n')
    (tools / runner).chmod(0o755)
    link = tmp_path / "kubectl-speculative"
    link.symlink_to(store / "kubectl-speculative")
    done = run(link, f"{tools}:/usr/bin:/bin")
    wheel = store / "speculative_operator-1.2.3-py3-none-any.whl"
    assert (done.returncode, done.stdout.strip()) == (0, words.format(wheel))


def test_without_uv_and_pipx_it_says_what_to_install(plugin: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "readlink"):
        (tools / name).symlink_to(
            next(path for path in (Path("/usr/bin") / name, Path("/bin") / name) if path.exists())
        )
    with tarfile.open(plugin[1]) as tar:
        tar.extractall(tmp_path / "store", filter="data")
    done = run(tmp_path / "store" / "kubectl-speculative", str(tools))
    assert done.returncode == 1
    assert done.stderr.startswith("error: kubectl speculative is a Python program; install uv")


def test_a_folder_that_krew_cannot_fetch_from_is_refused() -> None:
    with pytest.raises(ReleaseError, match="https://"):
        krew("file:///tmp")


def run(program: Path, path: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path}
    return subprocess.run([str(program), "get", "-A"], env=environment, capture_output=True, text=True, check=False)
