"""A workload as KServe's LLMInferenceService, of which KServe makes a Deployment `NAME-kserve`. Used by `targets`.

Four ways of KServe shape this (pkg/controller/v1alpha2/llmisvc, releases 0.17 to 0.20):

- `spec.labels` become labels of the pods **and the selector of the Deployment**, which cannot be changed. So only the
  labels by which pods are found stand there, and those that change stand among `spec.annotations`, which pods get too.
- Labels and annotations of the object itself stay there, but for a few prefixes: the place for what only the operator
  or the dashboard reads.
- The template is laid over KServe's own, whose command is a shell script: with a command of its own an engine gets its
  arguments as a list. A probe or hook of another form than KServe's would stand beside it, and make the pod invalid.
- The whole is read as a Go template, in which `{{` begins an expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import mapping
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.render.environment import RenderError, render_manifest
from speculative_operator.render.podspec import engine_of
from speculative_operator.render.target import (
    DASHBOARD,
    EXPOSED,
    QUEUE,
    KServeTarget,
    common_values,
    escape,
    resources,
    steps,
)

Manifest = dict[str, Any]
KIND = "LLMInferenceService"
CONTAINER = "main"
OF_PODS = (names.LABEL_VARIANT, names.LABEL_PAIR, names.LABEL_VERSION)
"""Labels of the workload's pods that are annotations of KServe's."""
OF_OBJECT = ("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component", DASHBOARD, QUEUE)
"""Labels that stand on the object alone; KServe labels its pods by the first and third of them as it likes."""
PLATFORM = ("openshift.io/", "opendatahub.io/", "security.opendatahub.io/")
"""Prefixes of annotations that stand on the object alone."""
HANDLERS = {"startupProbe": "httpGet", "readinessProbe": "httpGet", "livenessProbe": "httpGet"}
"""Form of each probe in KServe's template."""
SLEEP = "/bin/sleep"
"""KServe's template stops pods by a command; the engine's image has this one."""


class LLMInferenceServiceTarget(KServeTarget):
    """The target whose pods KServe makes for an LLMInferenceService."""

    kind = KIND
    container = CONTAINER

    def url(self, spec: DeploymentSpec) -> str:
        scheme = spec.inference_service.scheme
        return f"{scheme}://{spec.name}-kserve-workload-svc.{spec.namespace}.svc:{spec.port}"

    def annotations(self, spec: DeploymentSpec) -> Mapping[str, str]:
        told = spec.inference_service
        return self.annotations_of_dashboard(spec, "true" if told.authenticated else "false" if told.anonymous else "")

    def check(self, template: Mapping[str, Any]) -> None:
        engine = self.engine_in(template)
        path = f"spec.template.spec.containers[{names.CONTAINER}]"
        if not engine.get("command"):
            raise RenderError(
                f"{path} has no command, and KServe would run a script of its own for vLLM; set command to what starts "
                "the engine in this image"
            )
        for field, form in HANDLERS.items():
            other = sorted({"exec", "grpc", "tcpSocket"} & set(mapping(engine, field)))
            if other:
                raise RenderError(f"{path}.{field}.{other[0]} would stand beside the {form} of KServe: use {form}")
        hook = mapping(engine, "lifecycle", "preStop")
        other = sorted(set(hook) - {"exec", "sleep"})
        if other:
            raise RenderError(f"{path}.lifecycle.preStop.{other[0]} would stand beside the exec of KServe: use exec")
        known = {*names.selector(""), *OF_PODS, *OF_OBJECT, EXPOSED}
        more = sorted(set(mapping(template, "metadata", "labels")) - known)
        if more:
            raise RenderError(
                f"spec.template.metadata.labels[{more[0]}]: KServe would select pods by it for ever; write it under "
                "annotations"
            )

    def write(self, spec: DeploymentSpec, workload: Manifest) -> tuple[Manifest, ...]:
        common, template = common_values(workload, spec), workload["spec"]["template"]
        labels, annotations = template["metadata"]["labels"], mapping(template["metadata"], "annotations")
        own = {key: value for key, value in annotations.items() if key.startswith(PLATFORM)}
        values = {
            **common,
            "labels": {**common["labels"], **{key: labels[key] for key in OF_OBJECT if key in labels}},
            "annotations": {**own, **common["annotations"]},
            "uri": spec.verifier.source.uri,
            "model": spec.verifier.served_name,
            "strategy": steps(workload["spec"]["strategy"]),
            "exposed": EXPOSED in labels,
            "pod_labels": {key: labels[key] for key in names.selector(spec.name)},
            "pod_annotations": escape(
                {
                    **{key: labels[key] for key in OF_PODS if key in labels},
                    **{key: value for key, value in annotations.items() if key not in own},
                }
            ),
            "template": escape(_template(template["spec"])),
        }
        return (render_manifest("llminferenceservice", values),)


def _template(pod: Mapping[str, Any]) -> dict[str, Any]:
    engine = engine_of(pod)
    return {**pod, "containers": [_container(one) if one == engine else one for one in pod["containers"]]}


def _container(engine: Mapping[str, Any]) -> dict[str, Any]:
    found = {**engine, "name": CONTAINER, "resources": resources(mapping(engine, "resources"))}
    for field, form in HANDLERS.items():
        asked = mapping(engine, field, form)
        if asked:
            # KServe's template asks by HTTPS where its services are encrypted: a field left out would be its own.
            found[field] = {**engine[field], form: {"scheme": "HTTP", **asked}}
    seconds = mapping(engine, "lifecycle", "preStop", "sleep").get("seconds")
    if seconds is not None:
        found["lifecycle"] = {**engine["lifecycle"], "preStop": {"exec": {"command": [SLEEP, str(seconds)]}}}
    return found


def container_as_rendered(container: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's container of an LLMInferenceService, turned back into the form of the workload."""
    found = {**container, "name": names.CONTAINER}
    command = mapping(container, "lifecycle", "preStop", "exec").get("command")
    if isinstance(command, list | tuple) and len(command) == 2 and command[0] == SLEEP and str(command[1]).isdecimal():
        found["lifecycle"] = {**container["lifecycle"], "preStop": {"sleep": {"seconds": int(command[1])}}}
    return found
