"""Answers whether an installed operator reconciles: `python -m speculative_operator.trial NAME -n NAMESPACE`, in a pod.

It creates an object without replicas, waits until the operator has reported on it, and deletes it. No serving pod
starts, no model is read. The chart's test hook (`helm test`) runs it from the operator's own image.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from speculative_operator.domain import names

SECONDS = 120.0
"""A new leader needs some twenty seconds, and a pod that starts a few more."""
LABEL = "serving.speculative.dev/trial"
"""Borne by objects of trials: nothing else is ever deleted."""
_BETWEEN = 1.0
_REQUEST_SECONDS = 10.0


def trial_object(name: str, namespace: str) -> dict[str, Any]:
    """The object: it asks for nothing that the cluster would have to have."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: "true"}},
        "spec": {
            "verifier": {"model": "hf://Qwen/Qwen3-8B"},
            "speculator": {"method": "ngram"},
            "weights": {"check": "Disabled"},
            "replicas": 0,
        },
    }


def verdict(found: Mapping[str, Any]) -> str:
    """What the operator reports on the object, once it is that the object serves as asked; empty before."""
    conditions = (found.get("status") or {}).get("conditions") or ()
    ready: Mapping[str, Any] = next((one for one in conditions if one.get("type") == "Ready"), {})
    current = ready.get("observedGeneration") == found.get("metadata", {}).get("generation")
    return f"{ready.get('reason')}: {ready.get('message')}" if current and ready.get("status") == "True" else ""


def run(name: str, namespace: str) -> str:
    """Create, wait, delete; what the operator reported, or empty where it did not within SECONDS."""
    api, at = client.CustomObjectsApi(), (names.GROUP, names.VERSION, namespace, names.PLURAL)
    _delete(api, at, name)
    until = time.monotonic() + SECONDS
    try:
        _create(api, at, trial_object(name, namespace), until)
        while time.monotonic() < until:
            found: Any = api.get_namespaced_custom_object(*at, name, _request_timeout=_REQUEST_SECONDS)
            if verdict(found):
                return verdict(found)
            time.sleep(_BETWEEN)
        return ""
    finally:
        _delete(api, at, name)


def _create(api: client.CustomObjectsApi, at: tuple[str, str, str, str], body: dict[str, Any], until: float) -> None:
    """One that is left from a trial before may still be going away."""
    while True:
        try:
            api.create_namespaced_custom_object(*at, body, _request_timeout=_REQUEST_SECONDS)
        except ApiException as error:
            if error.status != 409 or time.monotonic() > until:
                raise
            time.sleep(_BETWEEN)
        else:
            return


def _delete(api: client.CustomObjectsApi, at: tuple[str, str, str, str], name: str) -> None:
    try:
        found: Any = api.get_namespaced_custom_object(*at, name, _request_timeout=_REQUEST_SECONDS)
        if LABEL in (found["metadata"].get("labels") or {}):
            api.delete_namespaced_custom_object(*at, name, _request_timeout=_REQUEST_SECONDS)
    except ApiException as error:
        if error.status != 404:
            raise


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 the operator reconciles, 1 it does not, or the API server could not be asked."""
    parser = argparse.ArgumentParser(prog="python -m speculative_operator.trial", description=__doc__)
    parser.add_argument("name", metavar="NAME", help="name of the object, which is deleted at the end")
    parser.add_argument("-n", "--namespace", metavar="NS", required=True, help="a namespace that the operator serves")
    chosen = parser.parse_args(argv)
    try:
        config.load_incluster_config()
        told = run(chosen.name, chosen.namespace)
    except (ApiException, HTTPError, config.ConfigException) as error:
        sys.stderr.write(f"the trial could not be made: {error}\n")
        return 1
    if told:
        print(f"the operator reconciles: it reported on an object without replicas ({told})")
        return 0
    sys.stderr.write(
        f"the operator has reported nothing on an object in {chosen.namespace} for {SECONDS:g} s: look at its log, and "
        "whether watchNamespaces names that namespace\n"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
