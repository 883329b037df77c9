"""The plug-in for krew: an archive with the operator's wheel and what starts it, and the manifest that names both.

Called by `release`. The archive is the same for the same wheel, so that its sum can be checked.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, StrictUndefined

SYSTEMS = ("linux", "darwin")
"""What krew calls them; the script needs a shell."""
FOLDER = Path("manifests") / "krew"


def write_plugin(root: Path, wheel: Path, out: Path, url: str, version: str, homepage: str) -> Path:
    """Write archive and manifest into `out`; `url` is the folder from which the archive will be fetched."""
    archive = out / f"kubectl-speculative-{version}.tar.gz"
    files = {
        "kubectl-speculative": (root / FOLDER / "kubectl-speculative", 0o755),
        "LICENSE": (root / "LICENSE", 0o644),
        wheel.name: (wheel, 0o644),
    }
    out.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(_archive(files))
    environment = Environment(
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  YAML, each value in JSON
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=json.dumps,
    )
    template = environment.from_string((root / FOLDER / "speculative.yaml.j2").read_text(encoding="utf-8"))
    manifest = out / "speculative.yaml"
    uri = f"{url.rstrip('/')}/{archive.name}"
    digest = sha256(archive.read_bytes()).hexdigest()
    text = template.render(version=f"v{version}", homepage=homepage, uri=uri, sha256=digest, systems=SYSTEMS)
    manifest.write_text(f"{text.rstrip()}\n", encoding="utf-8")
    return manifest


def _archive(files: dict[str, tuple[Path, int]]) -> bytes:
    """A compressed tar of the files, without times and owners."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (path, mode) in files.items():
            entry, content = tarfile.TarInfo(name), path.read_bytes()
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)
