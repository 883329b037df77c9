"""Chart and OLM bundle of a release: those of the repository with the image that was pushed. Called by `release`.

In the repository both name no image that can be pulled, because none is published from there. What a release publishes
names its own, by digest where `image --push` recorded one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from devcluster import toolchain

IMAGE = "speculative-operator"
CHART = f"charts/{IMAGE}"
BUNDLE = "manifests/olm"


class PublishError(Exception):
    """What keeps chart or bundle from being written; the text says what to do."""


def write_chart(root: Path, out: Path, registry: str, digest: str) -> None:
    """Package the chart into `out`. Raises PublishError."""
    _check(registry)
    place = out / "chart" / IMAGE
    shutil.rmtree(place.parent, ignore_errors=True)
    shutil.copytree(root / CHART, place)
    values = place / "values.yaml"
    values.write_text(with_image(values.read_text(encoding="utf-8"), registry, digest), encoding="utf-8")
    helm = shutil.which("helm") or str(toolchain.ensure().helm)
    done = subprocess.run([helm, "package", str(place), "-d", str(out)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PublishError(f"helm package failed: {done.stderr.strip()}")
    print(done.stdout.strip())


def with_image(values: str, registry: str, digest: str) -> str:
    """values.yaml with the release's image as the default."""
    text = re.sub("^  repository: ''$", f"  repository: {registry}{IMAGE}", values, count=1, flags=re.MULTILINE)
    text = re.sub("^  digest: ''$", f"  digest: {digest or repr('')}", text, count=1, flags=re.MULTILINE)
    if f"repository: {registry}{IMAGE}\n" not in text:
        raise PublishError(f"{CHART}/values.yaml has no empty image.repository; look at release/publish.py")
    return text


def write_bundle(root: Path, out: Path, registry: str, digest: str) -> None:
    """Write the bundle's folder into `out`. Raises PublishError."""
    _check(registry)
    place = out / "olm"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(root / BUNDLE, place)
    for file in place.rglob("*.yaml"):
        text = file.read_text(encoding="utf-8")
        named = re.compile(rf"(?<![\w/.-]){IMAGE}:(\d[\w.-]*)")
        file.write_text(
            named.sub(lambda found: f"{registry}{IMAGE}{f'@{digest}' if digest else f':{found[1]}'}", text),
            encoding="utf-8",
        )
    print(f"Successfully wrote the bundle to: {place}")


def _check(registry: str) -> None:
    if not registry.endswith("/"):
        raise PublishError(f"--registry is {registry!r}; name where the image was pushed to, such as ghcr.io/OWNER/")
