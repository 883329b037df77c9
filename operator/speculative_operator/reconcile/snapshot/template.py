"""What `spec.template` says of pods, as far as the operator goes by it; `render` merges the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import mappings, text


def image_in(template: Mapping[str, Any]) -> str:
    """The image that it sets for the engine; empty where it sets none."""
    containers = mappings(template, "spec", "containers")
    return next((text(one, "image") for one in containers if text(one, "name") == names.CONTAINER), "")


def sets_environment(template: Mapping[str, Any]) -> bool:
    """True where it sets environment variables."""
    return any(one.get("env") or one.get("envFrom") for one in mappings(template, "spec", "containers"))


def pair_in(template: Mapping[str, Any]) -> str:
    """The label that it gives pods in place of their pair's; empty where it gives none."""
    return text(template, "metadata", "labels", names.LABEL_PAIR)
