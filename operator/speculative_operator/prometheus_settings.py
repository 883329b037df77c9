"""How the operator reaches Prometheus and finds its pods there: the settings of which `Settings` is the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from speculative_operator.domain.promql import LABEL, wrong_matchers

PREFIX = "SPECULATIVE_"
DEFAULT_URL = "http://prometheus-operated.monitoring.svc:9090"
_OF_API_SERVER = "/secrets/kubernetes.io/serviceaccount/token"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})


class PrometheusSettings(BaseSettings):
    """Settings from variables `SPECULATIVE_PROMETHEUS_<NAME>`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="ignore", validate_default=True
    )

    prometheus_url: str = Field(
        default=DEFAULT_URL,
        description="URL of Prometheus or of anything with its query API (Thanos, Mimir). If it is not set, and no "
        "token, password or certificate either, the operator asks the Service of the only Prometheus object of "
        "prometheus-operator, or of that in the namespace `monitoring`, and stays with the first that brings "
        "figures; the default is for a cluster without one.",
    )
    prometheus_token_file: str = Field(
        default="",
        description="path: bearer token for Prometheus, read again for each request because tokens rotate; empty "
        "sends none.",
    )
    prometheus_token_over_http: bool = Field(
        default=False,
        description="boolean: send the token, or the user and password of the URL, to an http:// address too, where "
        "everybody on the network path can read it. Off: the operator refuses to start with such settings, except for "
        "loopback.",
    )
    prometheus_ca_file: str = Field(
        default="", description="path: CA bundle that signed Prometheus' certificate; empty uses the system's."
    )
    prometheus_timeout_seconds: float = Field(
        default=5.0,
        gt=0.0,
        description="seconds: limit for one query, connection included. It must be less than a tick, so that queries "
        "do not pile up.",
    )
    prometheus_basic_auth_folder: str = Field(
        default="",
        description="path of a folder with the files `username` and `password`, as a mounted Secret of type "
        "kubernetes.io/basic-auth has them; read again for each request. Empty sends none.",
    )
    prometheus_certificate_folder: str = Field(
        default="",
        description="path of a folder with the files `tls.crt` and `tls.key`, as a mounted Secret of type "
        "kubernetes.io/tls has them: the certificate that the operator shows to Prometheus (mTLS). Empty shows none.",
    )
    prometheus_headers: str = Field(
        default="",
        description='JSON object of headers of every query, such as `{"X-Scope-OrgID": "TENANT"}` for Mimir. '
        "Everybody who may read the operator's Deployment sees them, so credentials are refused.",
    )
    prometheus_proxy: str = Field(
        default="",
        pattern="^(https?://.+)?$",
        description="URL of an HTTP proxy on the way to Prometheus. The operator ignores HTTP_PROXY and HTTPS_PROXY of "
        "its environment, because a Prometheus is mostly within the cluster. With user and password in the URL, set it "
        "by the chart's `extraEnv` with a `secretKeyRef`.",
    )
    prometheus_pod_label: str = Field(
        default="pod",
        pattern=LABEL,
        description="label that holds the name of the pod, such as `kubernetes_pod_name` where the scrape job "
        "relabels it.",
    )
    prometheus_namespace_label: str = Field(
        default="namespace",
        pattern=LABEL,
        description="label that holds the namespace of the pod, such as `kubernetes_namespace` or "
        "`exported_namespace`.",
    )
    prometheus_address_label: str = Field(
        default="instance",
        pattern="^([a-zA-Z_][a-zA-Z0-9_]*)?$",
        description="label with the address of a scrape target, HOST or HOST:PORT. Series belong to a pod if this "
        "label has the pod's IP. Set another label if Prometheus rewrites it; `none` trusts the labels `namespace` "
        "and `pod` alone, which is safe only if Prometheus lets no target set them.",
    )
    prometheus_matchers: str = Field(
        default="",
        description="label matchers of PromQL added to every query for pods, such as "
        '`cluster="a",job=~"llm-.*"`: for a Prometheus (Thanos, Mimir) that holds more than this cluster.',
    )

    @field_validator("prometheus_url")
    @classmethod
    def _url(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")) or not urlsplit(value).hostname:
            raise ValueError("must be http://HOST or https://HOST")
        return value.rstrip("/")

    @field_validator("prometheus_address_label")
    @classmethod
    def _label(cls, value: str) -> str:
        return "" if value == "none" else value

    @field_validator("prometheus_token_file")
    @classmethod
    def _token(cls, value: str) -> str:
        if value.endswith(_OF_API_SERVER):
            raise ValueError(
                "is the token for the API server, which has all permissions of the operator: mount one with an "
                "audience of its own (a projected volume, as the chart does)"
            )
        return value

    @field_validator("prometheus_matchers")
    @classmethod
    def _matchers(cls, value: str) -> str:
        value = value.strip()
        wrong = wrong_matchers(value) if value else ""
        if wrong:
            raise ValueError(wrong)
        return value

    @field_validator("prometheus_headers")
    @classmethod
    def _headers(cls, value: str) -> str:
        try:
            headers = json.loads(value or "{}")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is no JSON ({error})") from None
        if not isinstance(headers, dict) or not all(
            _HEADER.fullmatch(name) and isinstance(text, str) and text.isprintable() and text.isascii()
            for name, text in headers.items()
        ):
            raise ValueError('must be a JSON object of HTTP headers, such as {"X-Scope-OrgID": "TENANT"}')
        secret = [name for name in headers if name.lower() in _SECRET_HEADERS]
        if secret:
            raise ValueError(
                f"must not set {secret[0]}: name a Secret (chart: prometheus.token, prometheus.basicAuth) in its place"
            )
        return value

    @model_validator(mode="after")
    def _credentials(self) -> PrometheusSettings:
        if self.prometheus_token_file and self.prometheus_basic_auth_folder:
            raise ValueError(
                f"{PREFIX}PROMETHEUS_TOKEN_FILE and {PREFIX}PROMETHEUS_BASIC_AUTH_FOLDER are both set: keep one of them"
            )
        self._check_clear_text()
        return self

    def _check_clear_text(self) -> None:
        url = urlsplit(self.prometheus_url)
        in_url = "URL" if url.username or url.password else ""
        in_folder = "BASIC_AUTH_FOLDER" if self.prometheus_basic_auth_folder else in_url
        secret = "TOKEN_FILE" if self.prometheus_token_file else in_folder
        near = url.hostname == "localhost" or (url.hostname or "").startswith("127.") or url.hostname == "::1"
        if secret and url.scheme == "http" and not near and not self.prometheus_token_over_http:
            raise ValueError(
                f"{PREFIX}PROMETHEUS_{secret} holds a credential, and {PREFIX}PROMETHEUS_URL is http://{url.hostname}: "
                f"it would cross the network readable; use https://, or set {PREFIX}PROMETHEUS_TOKEN_OVER_HTTP=true"
            )

    @property
    def prometheus_is_found(self) -> bool:
        """Whether the cluster is searched for its Prometheus. Never with a credential, which would go to whatever is
        found."""
        said = {"url", "token_file", "basic_auth_folder", "certificate_folder"}
        return not {f"prometheus_{one}" for one in said} & self.model_fields_set

    @property
    def prometheus_header_map(self) -> Mapping[str, str]:
        """Headers of every query."""
        headers: dict[str, str] = json.loads(self.prometheus_headers or "{}")
        return headers
