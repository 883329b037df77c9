"""Removes credentials from texts. Called wherever the operator makes a text that others read:
conditions, events, warnings, gaps, results of Jobs, logs."""

from __future__ import annotations

import re

HIDDEN = "***"
_SUSPECT = re.compile(r"://|\?[\w.%~-]+=|authorization", re.IGNORECASE)
_USER = re.compile(r"""(?<=://)[^\s/?#"'<>]*@""")
_QUERY = re.compile(r"""(?<=[/\w.\]])\?[\w.%~-]+=[^\s"'<>)]*""")
_HEADER = re.compile(r"""(authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?)[^\s"',}]+""", re.IGNORECASE)


def without_credentials(text: str) -> str:
    """`text` without user and password of URLs, without their queries, which sign or name a token, and without what
    follows `Authorization`."""
    if not _SUSPECT.search(text):
        return text
    text = _USER.sub(f"{HIDDEN}@", text)
    text = _QUERY.sub(f"?{HIDDEN}", text)
    return _HEADER.sub(rf"\1{HIDDEN}", text)
