"""Where the API server is and who we are there: for our client and for kopf alike, from one place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kopf
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import load_incluster_config
from kubernetes.aio.config.kube_config import load_kube_config

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class LoginError(Exception):
    """No usable credentials. The message says what was tried."""


async def configuration() -> Any:
    """Client configuration: `KUBECONFIG` where it is set, else the pod's ServiceAccount.

    The ServiceAccount's token is re-read from its file while the process runs. Raises LoginError.
    """
    config = Configuration()
    named = os.environ.get("KUBECONFIG", "")
    try:
        if named:
            await load_kube_config(config_file=named, client_configuration=config)
        else:
            load_incluster_config(client_configuration=config)
    except (ConfigException, OSError) as error:
        where = f"KUBECONFIG={named}" if named else "the pod's ServiceAccount"
        raise LoginError(f"cannot log in to the API server by {where}: {error}") from error
    return config


async def connection() -> kopf.ConnectionInfo:
    """Fresh credentials in kopf's form. kopf asks again when the API server answers 401. Raises LoginError."""
    config = await configuration()
    header = await config.get_api_key_with_prefix("BearerToken", alias="authorization")
    scheme, _, token = (header or "").rpartition(" ")
    return kopf.ConnectionInfo(
        server=config.host,
        ca_path=config.ssl_ca_cert or None,
        insecure=not config.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=config.cert_file or None,
        private_key_path=config.key_file or None,
        proxy_url=config.proxy or None,
    )


def has_ipv6() -> bool:
    """True where the first address of the pod this runs in, `POD_IP`, is one of IPv6: clusters give all pods the same
    family first."""
    return ":" in os.environ.get("POD_IP", "")


def own_namespace() -> str:
    """Namespace of the pod this runs in; `POD_NAMESPACE`, then the ServiceAccount's file, then `default`."""
    named = os.environ.get("POD_NAMESPACE", "")
    if named:
        return named
    try:
        return NAMESPACE_FILE.read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"
