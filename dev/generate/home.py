"""The first page of the site, docs/index.md: the README, and below it every page by what a reader wants. Called by
`generate`.

Links of the README lead from the repository's root, those of the page from docs/. What lies outside docs/ is no part of
the site: its name stays, its link goes.
"""

from __future__ import annotations

import re
from typing import Any

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")
_PAGES = re.compile(r"\[All pages\]\([^)]*\)")


def home(readme: str, nav: list[dict[str, Any]]) -> str:
    """The page's text; `nav` is that of mkdocs.yml."""
    text = _PAGES.sub("[All pages](#all-pages)", readme)
    lines = [_LINK.sub(_from_docs, text), "## All pages", ""]
    for group in nav:
        for title, entries in group.items():
            if isinstance(entries, list):
                pages = [f"[{name}]({path})" for one in entries for name, path in one.items()]
                lines.append(f"- **{title}**: {', '.join(pages)}")
    return "\n".join([*lines, ""])


def _from_docs(link: re.Match[str]) -> str:
    mark, words, target = link.groups()
    if target.startswith("#"):
        return link[0]
    return f"{mark}[{words}]({target.removeprefix('docs/')})" if target.startswith("docs/") else words
