"""What released images are made of: every package by hash, a base by digest, and a word on where they came from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from release import __main__ as release

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PINS = dict(
    line.lower().replace("_", "-").split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if "==" in line
)


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Package -> version and hashes of a lock file."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if match := re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;]+)", line):
            found[match.group(1).lower().replace("_", "-")] = (match.group(2), re.findall(r"sha256:[0-9a-f]{64}", line))
    return found


@pytest.mark.parametrize("name", release.SOURCES)
def test_every_package_of_an_image_has_its_hashes(name: str) -> None:
    packages = locked(name)
    assert packages
    assert [one for one, (_, hashes) in packages.items() if not hashes] == []


@pytest.mark.parametrize("name", ["operator", "emulator", "build"])
def test_images_hold_the_versions_that_the_tests_run_with(name: str) -> None:
    """`make lock` after a change of constraints.txt."""
    differing = {one: version for one, (version, _) in locked(name).items() if PINS.get(one, version) != version}
    assert differing == {}


def test_nothing_comes_into_an_image_unhashed() -> None:
    installs = re.findall(r"pip install ([^\n]*)", DOCKERFILE)
    assert len(installs) == 5
    for one in installs:
        assert "--require-hashes" in one or ("--no-index" in one and "--no-deps" in one)
    assert "--no-isolation" in DOCKERFILE, "else the build fetches setuptools by itself"


def test_the_trainers_image_is_vllms_of_the_default_release_with_packages_by_hash() -> None:
    text = (ROOT / "Dockerfile.trainer").read_text()
    assert f"ARG BASE={release.TRAINER_BASE}\n" in text
    (installed,) = re.findall(r"pip install ([^\n]*)", text)
    assert {"--require-hashes", "--no-deps"} <= set(installed.split())
    assert re.search(r"^USER \d+:\d+$", text, re.MULTILINE)


def test_a_base_without_a_digest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "_run", lambda *_: "latest")
    with pytest.raises(release.ReleaseError, match="give NAME:TAG@sha256:"):
        release.image("", "python:3.12-slim")
    with pytest.raises(release.ReleaseError, match="give NAME:TAG@sha256:"):
        release.image("", "python:3.12-slim@sha256:abc")


def test_what_the_image_is_built_from_reaches_the_builder() -> None:
    wanted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert {part.split("/")[0] for one in copied for part in one.split()} == wanted
