"""The address of the project's repository. `[project.urls]` of pyproject.toml is the one place that holds it, once it
exists; a variable takes its place where a fork publishes. What a release links to follows from it, in chart, bundle,
plug-in, wheel, labels of images, and site. Without an address links are left out. Called by `release`.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

VARIABLE = "SPECULATIVE_REPOSITORY"
_FIELD = "Repository"
_BEFORE = "[project.scripts]\n"
_BADGE = "[![Release]({url}/actions/workflows/release.yaml/badge.svg)]({url}/releases)\n"


def repository(root: Path) -> str:
    """https:// address without a slash at its end; empty where nobody set one."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(os.environ.get(VARIABLE) or project.get("urls", {}).get(_FIELD, "")).rstrip("/")


def files_of(address: str, version: str) -> str:
    """Folder of a release's files, as GitHub has it; empty without an address."""
    return f"{address}/releases/download/v{version}" if address else ""


def write(root: Path, url: str) -> None:
    """Put the address into pyproject.toml, and its badge under the title of README.md if that is there."""
    project = root / "pyproject.toml"
    text = re.sub(r"\[project\.urls\]\n.*?\n\n", "", project.read_text(encoding="utf-8"), flags=re.DOTALL)
    project.write_text(text.replace(_BEFORE, f'[project.urls]\n{_FIELD} = "{url}"\n\n{_BEFORE}'), encoding="utf-8")
    readme = root / "README.md"
    if readme.is_file():
        title, _, rest = readme.read_text(encoding="utf-8").partition("\n\n")
        rest = re.sub(r"\A\[!\[Release\].*\n\n", "", rest)
        readme.write_text(f"{title}\n\n{_BADGE.format(url=url)}\n{rest}", encoding="utf-8")
