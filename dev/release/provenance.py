"""Where an image came from, as an in-toto statement with SLSA's predicate. Written by `python -m release image`.

The statement is unsigned: it says what this build did, and whoever publishes the image signs it with a key of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://serving.speculative.dev/build/docker/v1"


@dataclass(frozen=True)
class Build:
    """One image that was built."""

    image: str
    digest: str
    """sha256:... of the image."""
    base: str
    """NAME:TAG@sha256:..."""
    target: str
    revision: str
    """Commit of the sources."""
    clean: bool
    """False: the sources differed from that commit."""
    files: Mapping[str, str]
    """Path -> sha256 of what pins the packages."""


def statement(build: Build, *, started: str, finished: str) -> dict[str, Any]:
    """The statement as JSON. Times are RFC 3339."""
    base, _, digest = build.base.partition("@")
    sources: dict[str, Any] = {"uri": "git+local", "digest": {"gitCommit": build.revision}}
    if not build.clean:
        sources["annotations"] = {"modified": True}
    materials = [
        sources,
        {"uri": f"docker://{base}", "digest": _digest(digest)},
        *({"uri": path, "digest": {"sha256": found}} for path, found in sorted(build.files.items())),
    ]
    return {
        "_type": STATEMENT,
        "subject": [{"name": build.image, "digest": _digest(build.digest)}],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"target": build.target, "base": build.base},
                "resolvedDependencies": materials,
            },
            "runDetails": {
                "builder": {"id": "https://serving.speculative.dev/builder/make-image"},
                "metadata": {"startedOn": started, "finishedOn": finished},
            },
        },
    }


def _digest(text: str) -> dict[str, str]:
    algorithm, _, value = text.partition(":")
    return {algorithm: value}
