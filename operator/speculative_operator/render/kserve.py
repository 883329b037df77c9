"""Common to both kinds of KServe: how to write a container so that KServe and webhooks of the platform leave it as it
is. Used by `inference_service` and `llm_inference_service`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from speculative_operator.domain.reading import mapping
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.render.target import TargetKind

GENEROUS = 4
"""Limits of processors and memory, in multiples of what is requested: KServe fills in one processor and 2 GiB where
there are none."""


class KServeTarget(TargetKind):
    """Base of both targets whose pods KServe makes."""

    reaches_pods = True

    def annotations_of_dashboard(self, spec: DeploymentSpec, authenticated: str, **more: str) -> dict[str, str]:
        """Annotations by which the platform shows and admits the model. `authenticated`: whether clients need a token,
        as KServe spells it; empty: KServe's default. `more`: annotations of one kind of KServe."""
        told = spec.inference_service
        found = {
            "openshift.io/display-name": told.display_name or spec.name,
            "openshift.io/description": told.description,
            "opendatahub.io/model-type": "generative",
            **more,
            "security.opendatahub.io/enable-auth": authenticated,
            "opendatahub.io/connections": told.connection,
            "opendatahub.io/hardware-profile-name": told.hardware_profile,
            "opendatahub.io/hardware-profile-namespace": told.hardware_profile
            and (told.hardware_profile_namespace or spec.namespace),
        }
        return {key: value for key, value in found.items() if value}


def without_name(container: Mapping[str, Any]) -> dict[str, Any]:
    """`container` without its name, which is another in the pods that KServe makes."""
    return {key: value for key, value in container.items() if key != "name"}


def resources(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Requests and limits of each resource that `asked` names: webhooks of the platform fill in missing ones with too
    little for an engine."""
    limits, requests = mapping(asked, "limits"), mapping(asked, "requests")
    more = {name: _generous(str(requests[name])) for name in ("cpu", "memory") if name in requests}
    return {"requests": {**limits, **requests}, "limits": {**more, **limits}}


def _generous(quantity: str) -> str:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", quantity)
    return f"{Decimal(found[1]) * GENEROUS:f}{found[2]}" if found else quantity


def escape(value: Any) -> Any:
    """`value` as a Go template that gives it."""
    return _replace(value, "{{", "{{`{{`}}")


def unescape(value: Any) -> Any:
    """The value that KServe reads from the result of `escape`."""
    return _replace(value, "{{`{{`}}", "{{")


def _replace(value: Any, old: str, new: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _replace(one, old, new) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_replace(one, old, new) for one in value]
    return value.replace(old, new) if isinstance(value, str) else value
