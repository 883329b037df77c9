"""Chart and OLM bundle of a release: those of the repository with the image that was pushed. Called by `release`.

In the repository both name no image that can be pulled, because none is published from there. What a release publishes
names its own, by digest where `image` recorded one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from devcluster import toolchain
from speculative_operator import __version__

IMAGE, TRAINER = "speculative-operator", "speculative-trainer"
CHART = f"charts/{IMAGE}"
BUNDLE = "manifests/olm"


class PublishError(Exception):
    """What keeps chart or bundle from being written; the text says what to do."""


def home_of(url: str) -> str:
    """The project's page, by the folder of a release's files on it."""
    return url.partition("/releases/")[0]


def write_chart(root: Path, out: Path, registry: str, digest: str, url: str = "") -> None:
    """Package the chart into `out`; `url`: the folder of the release's files, for what Artifact Hub shows. Raises
    PublishError."""
    _check(registry, url)
    place = out / "chart" / IMAGE
    shutil.rmtree(place.parent, ignore_errors=True)
    shutil.copytree(root / CHART, place)
    values = place / "values.yaml"
    values.write_text(with_image(values.read_text(encoding="utf-8"), registry, digest), encoding="utf-8")
    if url:
        about = place / "Chart.yaml"
        about.write_text(with_home(about.read_text(encoding="utf-8"), url, registry, digest), encoding="utf-8")
    helm = shutil.which("helm") or str(toolchain.ensure().helm)
    done = subprocess.run([helm, "package", str(place), "-d", str(out)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PublishError(f"helm package failed: {done.stderr.strip()}")
    print(done.stdout.strip())


def with_image(values: str, registry: str, digest: str) -> str:
    """values.yaml with the release's images as the defaults."""
    trainer = f"trainerImage: {registry}{TRAINER}:{__version__}"
    values = re.sub("^trainerImage: ''$", trainer, values, count=1, flags=re.MULTILINE)
    text = re.sub("^  repository: ''$", f"  repository: {registry}{IMAGE}", values, count=1, flags=re.MULTILINE)
    text = re.sub("^  digest: ''$", f"  digest: {digest or repr('')}", text, count=1, flags=re.MULTILINE)
    if f"repository: {registry}{IMAGE}\n" not in text:
        raise PublishError(f"{CHART}/values.yaml has no empty image.repository; look at release/publish.py")
    return text


def with_home(text: str, url: str, registry: str, digest: str) -> str:
    """Chart.yaml with the page of the project, its icon and documentation at the release, and the image."""
    chart: dict[str, Any] = yaml.safe_load(text)
    home, tag = home_of(url), url.rstrip("/").rpartition("/")[2]
    chart |= {"home": home, "sources": [home], "icon": f"{home}/raw/{tag}/docs/images/icon.svg"}
    image = f"{registry}{IMAGE}{f'@{digest}' if digest else ':' + chart['appVersion']}"
    chart["annotations"] |= {
        "artifacthub.io/links": _yaml(_links(home, tag)),
        "artifacthub.io/images": _yaml([{"name": "operator", "image": image}]),
    }
    return _yaml(chart)


def _links(home: str, tag: str) -> list[dict[str, str]]:
    return [
        {"name": "Documentation", "url": f"{home}/tree/{tag}/docs"},
        {"name": "Changes", "url": f"{home}/blob/{tag}/CHANGELOG.md"},
    ]


def _yaml(item: Any) -> str:
    text: str = yaml.safe_dump(item, sort_keys=False, width=120)
    return text


def write_bundle(root: Path, out: Path, registry: str, digest: str, url: str = "") -> None:
    """Write the bundle's folder into `out`; `url`: the folder of the release's files, for links. Raises
    PublishError."""
    _check(registry, url)
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
    if url:
        _link_bundle(place, url)
    print(f"Successfully wrote the bundle to: {place}")


def _link_bundle(place: Path, url: str) -> None:
    """Have the ClusterServiceVersion name the page of the project."""
    home, tag = home_of(url), url.rstrip("/").rpartition("/")[2]
    (file,) = (place / "manifests").glob("*.clusterserviceversion.yaml")
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    csv = yaml.safe_load("".join(lines))
    csv["metadata"]["annotations"]["repository"] = home
    csv["spec"] |= {"links": _links(home, tag), "provider": {**csv["spec"]["provider"], "url": home}}
    head = takewhile(lambda line: line.startswith("#"), lines)
    file.write_text("".join(head) + _yaml(csv), encoding="utf-8")


def _check(registry: str, url: str) -> None:
    if url and not (url.startswith("https://") and "/releases/" in url):
        raise PublishError(
            f"--url is {url!r}; give the https:// folder of the release's files, .../releases/download/TAG"
        )
    if not registry.endswith("/"):
        raise PublishError(f"--registry is {registry!r}; name where the image was pushed to, such as ghcr.io/OWNER/")
