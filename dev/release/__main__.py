"""`python -m release lock|sbom|image|chart|bundle|wheel|krew|version|address`: packages by hash, bills of materials,
images with their provenance, chart and OLM bundle that name them, the wheel, its plug-in for krew.

`make lock`, `make sbom`, `make image` and so on call it, and so does the release workflow. uv and
cyclonedx-py are pinned by hash as well, with all that they need, and live in an environment of their own. `image` needs
Docker with buildx and a way to the base image's registry.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from release import address, versions
from release.krew import write_plugin
from release.provenance import Build, statement
from release.publish import PublishError, home_of, write_bundle, write_chart
from speculative_operator.domain.spec import DEFAULT_VERSIONS, EngineType

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "requirements"
OUT = ROOT / "build" / "release"
BASE = "python:3.12-slim"
PYTHON = "3.12"
SOURCES = {
    "operator": ("pyproject.toml", "--extra", "weights", "--no-emit-package", "hf-xet"),
    "emulator": ("lab/pyproject.toml", "--extra", "emulator", "--no-emit-package", "speculative-operator"),
    "build": ("requirements/build.in",),
    "tools": ("requirements/tools.in",),
    "trainer": ("requirements/trainer.in", "--no-deps"),
}
"""Lock file -> what it is resolved from. huggingface_hub does without hf-xet where files are fetched by ranges. The
trainer's packages lie on top of vLLM's image, which has what they leave out."""
IMAGES = {"operator": "speculative-operator", "emulator": "vllm-emulator"}
"""Target of the Dockerfile -> name of the image."""
TRAINER = {"trainer": "speculative-trainer"}
"""As IMAGES, of Dockerfile.trainer, which lies on vLLM's image: built by itself, because that one is large."""
TRAINER_BASE = f"vllm/vllm-openai:v{DEFAULT_VERSIONS[EngineType.VLLM]}"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class ReleaseError(Exception):
    """What keeps a release from being made; the text says what to do."""


def lock() -> None:
    """Resolve every lock file anew, within constraints.txt."""
    uv = _tool("uv")
    for name, source in SOURCES.items():
        options = ("--generate-hashes", "--universal", "--python-version", PYTHON, "-c", "constraints.txt")
        _run(str(uv), "pip", "compile", "--quiet", "--no-header", *options, *source, "-o", f"requirements/{name}.txt")


def sbom() -> None:
    """A CycloneDX bill of materials of what each image installs, from its lock file."""
    tool = _tool("cyclonedx-py")
    OUT.mkdir(parents=True, exist_ok=True)
    for name in (*IMAGES, *TRAINER):
        target = str(OUT / f"{name}.cdx.json")
        about = () if name in TRAINER else ("--pyproject", SOURCES[name][0])
        options = (*about, "--mc-type", "application", "--output-reproducible", "-o", target)
        _run(str(tool), "requirements", f"requirements/{name}.txt", *options)


def image(
    registry: str, base: str, *, archive: bool = False, platforms: str = "", images: Mapping[str, str] = IMAGES
) -> None:
    """Build the images on a base by digest, with labels, and say where each came from; `archive`: into one file each,
    to be looked at before it is pushed, else into Docker; `platforms`: such as linux/amd64,linux/arm64, else this
    machine's. Raises ReleaseError."""
    if "," in platforms and not archive:
        raise ReleaseError(f"--platform is {platforms}, but Docker keeps one; add --archive")
    version = _version()
    pinned = base if "@" in base else f"{base}@{_resolved(base)}"
    if not DIGEST.fullmatch(pinned.partition("@")[2]):
        raise ReleaseError(f"--base is {base}, whose digest is none; give NAME:TAG@sha256:...")
    revision, clean = _run("git", "rev-parse", "HEAD"), not _run("git", "status", "--porcelain")
    OUT.mkdir(parents=True, exist_ok=True)
    for target, name in images.items():
        reference, started = f"{registry}{name}:{version}", _now()
        metadata = OUT / f"{target}.metadata.json"
        arguments = {"BASE": pinned, "VERSION": version, "REVISION": revision}
        options = [part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")]
        options += ["--platform", platforms] if platforms else []
        options += ["--file", "Dockerfile.trainer"] if target in TRAINER else []
        if home := address.repository(ROOT):
            options += ["--label", f"org.opencontainers.image.source={home}"]
        output = f"--output=type=oci,dest={OUT / target}.oci.tar" if archive else "--load"
        _run("docker", "buildx", "build", output, "--target", target, "-t", reference, *options,
             "--metadata-file", str(metadata), ".")  # fmt: skip
        digest = str(json.loads(metadata.read_text())["containerimage.digest"])
        locks = (target,) if target in TRAINER else ("build", target)
        files = {f"requirements/{one}.txt": _sha256(LOCKS / f"{one}.txt") for one in locks}
        build = Build(reference, digest, pinned, target, revision, clean, files)
        told = statement(build, started=started, finished=_now())
        (OUT / f"{target}.provenance.json").write_text(json.dumps(told, indent=2) + "\n")
        sys.stdout.write(f"{reference} {digest}\n  on {pinned}\n")


def version(number: str, tag: str) -> None:
    """Print the version, or make it `number` in all files. Raises ReleaseError where `tag` is that of another one."""
    if number:
        if not re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?", number):
            raise ReleaseError(f"{number} is no version; give MAJOR.MINOR.PATCH")
        versions.write(ROOT, number)
        sys.stdout.write("run `make generate`, and begin the version's part in CHANGELOG.md\n")
    found = _version()
    if tag and tag != f"v{found}":
        raise ReleaseError(f"the tag is {tag}, but pyproject.toml has version {found}; tag v{found}, or change it")
    sys.stdout.write(f"{found}\n")


def _built() -> str:
    """Digest of the operator's image as `image` recorded it; empty where it did not."""
    metadata = OUT / "operator.metadata.json"
    return str(json.loads(metadata.read_text())["containerimage.digest"]) if metadata.is_file() else ""


def wheel() -> Path:
    """Build the operator's wheel, whose metadata have the repository's address."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, place / name)
        shutil.copytree(
            ROOT / "operator", place / "operator", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
        )
        if home := address.repository(ROOT):
            address.write(place, home)
        _run(sys.executable, "-m", "build", "--wheel", "--outdir", str(OUT), folder)
    built = next(OUT.glob(f"speculative_operator-{_version()}-*.whl"))
    sys.stdout.write(f"{built}\n")
    return built


def krew(url: str) -> None:
    """Build the operator's wheel, and the plug-in for krew of it. Raises ReleaseError."""
    if not url.startswith("https://"):
        raise ReleaseError(f"--url is {url!r}; give the https:// folder from which krew will fetch the archive")
    sys.stdout.write(f"{write_plugin(ROOT, wheel(), OUT, url, _version(), home_of(url))}\n")


def tell_address(url: str) -> None:
    """Print the repository's address, or make it `url`. Raises ReleaseError."""
    if url:
        if not re.fullmatch(r"https://[^/\s]+(/[^/\s]+)+", url):
            raise ReleaseError(f"{url} is no repository's address; give https://HOST/OWNER/NAME")
        address.write(ROOT, url)
        sys.stderr.write("run `make generate`\n")
    sys.stdout.write(f"{address.repository(ROOT)}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 not possible here."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument(
        "what", choices=["lock", "sbom", "image", "chart", "bundle", "wheel", "krew", "version", "address"]
    )
    parser.add_argument("number", nargs="?", default="", help="version, address: what the files shall bear")
    parser.add_argument(
        "--archive", action="store_true", help="image: into build/release/*.oci.tar, to be scanned first"
    )
    parser.add_argument(
        "--trainer", action="store_true", help="image: that of the Jobs that train, instead of the others"
    )
    parser.add_argument("--tag", default="", help="version: fail unless this is the tag of the version")
    parser.add_argument("--platform", default="", help="image: with --archive, such as linux/amd64,linux/arm64")
    parser.add_argument(
        "--url",
        default=address.files_of(address.repository(ROOT), _version()),
        help="krew, chart, bundle: https:// folder of the release's files (default: that of the repository's address)",
    )
    parser.add_argument("--registry", default="", help="prefix of image names, such as registry.example.com/serving/")
    parser.add_argument(
        "--base", default="", help=f"base image; its digest is asked for (default: {BASE} or {TRAINER_BASE})"
    )
    chosen = parser.parse_args(arguments)
    try:
        actions: dict[str, Callable[[], object]] = {
            "lock": lock,
            "sbom": sbom,
            "image": lambda: image(
                chosen.registry,
                chosen.base or (TRAINER_BASE if chosen.trainer else BASE),
                archive=chosen.archive,
                platforms=chosen.platform,
                images=TRAINER if chosen.trainer else IMAGES,
            ),
            "chart": lambda: write_chart(ROOT, OUT, chosen.registry, _built(), chosen.url),
            "bundle": lambda: write_bundle(ROOT, OUT, chosen.registry, _built(), chosen.url),
            "wheel": wheel,
            "krew": lambda: krew(chosen.url),
            "address": lambda: tell_address(chosen.number),
            "version": lambda: version(chosen.number, chosen.tag),
        }
        actions[chosen.what]()
    except (ReleaseError, PublishError, OSError) as error:
        sys.stderr.write(f"{chosen.what}: {error}\n")
        return 2
    return 0


def _tool(name: str) -> Path:
    """Path of a tool of requirements/tools.txt, in an environment made for that file."""
    home = ROOT / "build" / f"release-tools-{_sha256(LOCKS / 'tools.txt')[:12]}"
    if not (home / "bin" / name).exists():
        venv.create(home, with_pip=True)
        pip = (str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run(*pip, "--require-hashes", "-r", str(LOCKS / "tools.txt"))
    return home / "bin" / name


def _resolved(base: str) -> str:
    """Digest of a tag as its registry has it now."""
    return _run("docker", "buildx", "imagetools", "inspect", base, "--format", "{{.Manifest.Digest}}")


def _version() -> str:
    return next(number for path, number in versions.list_versions(ROOT) if path == versions.SOURCE)


def _sha256(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _run(*command: str) -> str:
    """Output of a program that ends well. Raises ReleaseError."""
    try:
        done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise ReleaseError(f"{command[0]} is not installed; `image` needs Docker with buildx") from error
    if done.returncode:
        raise ReleaseError(f"{' '.join(command[:4])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
