"""The little PromQL that the operator writes itself: label matchers. Used by the query for pods and by settings."""

from __future__ import annotations

import re
from collections.abc import Iterable

LABEL = "^[a-zA-Z_][a-zA-Z0-9_]*$"
"""Pattern of a label's name."""
_ESCAPE = r'\\(?:[abfnrtv\\"]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})'
_MATCHER = rf'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n]|{_ESCAPE})*"\s*'
_MATCHERS = re.compile(f"{_MATCHER}(?:,{_MATCHER})*")
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
OURS = ("__name__", "namespace", "pod")
"""Labels that the operator itself matches."""


def quote(text: str) -> str:
    """`text` as a string of PromQL, without the quotes around it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def one_of(texts: Iterable[str]) -> str:
    """A regular expression that matches these texts and nothing else."""
    return "|".join(_SPECIAL.sub(r"\\\1", text) for text in texts)


def wrong_matchers(text: str) -> str:
    """What is wrong with label matchers that a user wrote; empty when nothing is."""
    if not _MATCHERS.fullmatch(text):
        return 'must be label matchers of PromQL such as cluster="a",job=~"llm-.*", with every value in double quotes'
    own = [name for name in re.findall(_MATCHER, text) if name in OURS]
    return f"must not match {own[0]}: the operator does so itself" if own else ""
