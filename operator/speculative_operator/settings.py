"""Every setting of the operator, read once from the environment, each with its unit and its reason.

`app.main` reads it, `shell` uses it; docs/settings.md is made from it by `make generate`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from speculative_operator import prometheus_settings
from speculative_operator.domain.platform import EVERY, Privilege
from speculative_operator.domain.reasons import without_credentials
from speculative_operator.prometheus_settings import PrometheusSettings

PREFIX = prometheus_settings.PREFIX
NAMESPACE_MEBIBYTES = 96
_FOLDER = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._-]+)+")
_LABEL = re.compile(r"([A-Za-z0-9.-]{1,253}/)?([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class SettingsError(ValueError):
    """The environment holds a value that cannot be used. The message names variable, value and remedy."""


class Settings(PrometheusSettings):
    """Settings from variables `SPECULATIVE_<NAME>`; an empty variable means the default."""

    namespaces: str = Field(
        default="",
        description="Comma-separated names of the namespaces to serve; empty serves all. With names given, the "
        "operator lists and watches nothing outside them, so Roles are enough.",
    )
    tick_seconds: float = Field(
        default=10.0,
        ge=1.0,
        le=300.0,
        description="seconds: interval at which the operator reads metrics and reconciles each object. A window of "
        "metrics needs two scrapes, so less than the scrape interval gains nothing.",
    )
    workers: int = Field(
        default=500,
        ge=1,
        le=10000,
        description="count: objects reconciled at the same time. A reconcile mostly waits for the API server; with "
        "few workers, the last writes of old objects delay the first ones of new objects. One namespace gets at most "
        "half.",
    )
    write_slots: int = Field(
        default=12,
        ge=1,
        le=256,
        description="count: requests to the API server at the same time. Requests that start pods go first; more "
        "slots only move the queue into the API server. A request that hangs lends its slot to other namespaces, up "
        "to 16 times this number.",
    )
    namespace_mebibytes: int = Field(
        default=NAMESPACE_MEBIBYTES,
        ge=16,
        le=65536,
        description="MiB of memory that all the operator knows of one namespace may take, some 0.1 MiB for each object "
        "with one pod. Objects beyond it are SpecInvalid. Raise the operator's memory limit with it.",
    )
    resync_seconds: float = Field(
        default=600.0,
        ge=10.0,
        description="seconds: interval at which the operator lists all objects to find what its watches missed, and "
        "checks which optional kinds exist. Jittered by 10 %.",
    )
    read_timeout_seconds: float = Field(
        default=30.0,
        gt=0.0,
        description="seconds: limit for one request to the API server; watches have no such limit.",
    )
    prometheus_range_seconds: int = Field(
        default=60,
        ge=10,
        le=3600,
        description="seconds of raw samples that a query asks for: at least two scrape intervals, or no window is "
        "complete.",
    )
    prometheus_series: int = Field(
        default=100_000,
        ge=5_000,
        description="count: series held in memory, over all namespaces; a pod has 40 of the engine, as many of its "
        "histograms and 200 or more of step telemetry. A series with up to 16 samples takes about 2 KiB, so raise the "
        "memory limit together with this. One namespace may take two fifths; for larger ones the operator leaves out "
        "histograms and step telemetry, then asks less often.",
    )
    read_pods: bool = Field(
        default=True,
        description="boolean: read `/metrics` of serving pods themselves, 32 of them at most, while Prometheus cannot "
        "be reached or has no series of any pod of a namespace for a minute. Off: tuning waits for Prometheus.",
    )
    stale_after_seconds: float = Field(
        default=30.0,
        gt=0.0,
        description="seconds: a pod whose newest sample is older counts as having no metrics, and nothing is changed "
        "for it.",
    )
    pod_monitor_labels: str = Field(
        default="",
        description="JSON object of labels for the PodMonitors of serving pods, by which your Prometheus chooses them. "
        "They go before those that the operator finds in the podMonitorSelector of the cluster's Prometheus objects, "
        "which it reads where it serves all namespaces.",
    )
    pod_monitor_seconds: int = Field(
        default=5,
        ge=2,
        le=15,
        description="seconds between two scrapes of a serving pod by its PodMonitor. A window needs two scrapes, and "
        "a sample is stale after half a minute.",
    )
    leader_election: bool = Field(
        default=True,
        description="boolean: write only while holding a Lease. Turn it off only if a second operator is impossible.",
    )
    lease_namespace: str = Field(
        default="", description="namespace of the Lease; empty: the operator's own (that of its ServiceAccount)."
    )
    lease_name: str = Field(
        default="speculative-operator",
        description="name of the Lease: operators that must not run at the same time share it.",
    )
    lease_duration_seconds: int = Field(
        default=15,
        ge=3,
        description="seconds after which another replica may take a Lease that was not renewed. A leader that cannot "
        "renew it stops writing after two thirds of that.",
    )
    check_pairs: bool = Field(
        default=True,
        description="boolean: inspect configuration, tokenizer and headers of verifier and speculator in a Job and "
        "check the pair before its pods are created. Off: every pair is served unchecked.",
    )
    job_image: str = Field(
        default="",
        description="image of the Jobs that inspect and fetch models: the operator's own, which chart and manifests "
        "set. Empty: no Job is created, so no pair is checked and no weights are cached.",
    )
    trainer_image: str = Field(
        default="",
        description="image of the Jobs that train speculators (docs/training.md), with vLLM and the library "
        "speculators: that of the release, which chart and manifests set. Empty: objects must name one themselves.",
    )
    inspect_jobs: int = Field(
        default=8,
        ge=1,
        le=1000,
        description="count: Jobs that inspect models at the same time, over all objects; other Jobs wait, those of "
        "objects with running pods longest. A Job takes some seconds. The limit matters because hubs throttle by "
        "address, and an upgrade or a new cluster gives every object a Job.",
    )
    catalogue: str = Field(
        default="",
        description="path of a CSV file with your own rows of the catalogue, which precede the built-in rows "
        "(docs/pairs.md); read again when it changes. Chart and manifests mount a ConfigMap there. Empty, or no "
        "such file: only the built-in rows.",
    )
    template_privileges: str = Field(
        default="",
        description="Comma-separated privileges that spec.template may request beyond the Pod Security level "
        f"baseline ({', '.join(Privilege)}); `*` allows all. Empty: a template that requests any is refused "
        "(docs/security.md).",
    )
    node_folders: str = Field(
        default="/var/lib/speculative-cache",
        description="Comma-separated folders of nodes; weights.cache.nodePath must be one of them or below one, "
        "because pods write there as root. `none`: no object may use a folder of its nodes.",
    )
    step_metrics_from: str = Field(
        default="",
        description="JSON list of NetworkPolicy peers (podSelector, namespaceSelector, ipBlock) that may reach the "
        "port of step telemetry in serving pods (8001): those of your Prometheus, and the operator. Empty: everybody; "
        "the chart names the namespaces of its value networkPolicy, and its own. It has no effect on pods that KServe "
        "makes, which get no NetworkPolicy.",
    )
    engine_registry: str = Field(
        default="",
        pattern="^([a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9._/-]+)?)?$",
        description="HOST[:PORT][/FOLDER] of a registry that mirrors the public images of engines: it takes the place "
        "of the registry in their names, so that `vllm/vllm-openai` becomes HOST/vllm/vllm-openai. Objects with "
        "engine.image keep that. A change replaces no pod (`UpgradeWaits`).",
    )
    plain_http_registries: str = Field(
        default="",
        description="HOST:PORT of registries without TLS, separated by commas; passed to the Jobs. Only the "
        "operator's administrator can allow this.",
    )
    source_timeout: float | None = Field(
        default=None,
        gt=0.0,
        description="seconds without a byte after which a source of models counts as unreachable; passed to the Jobs, "
        "whose own default is 30.",
    )
    http_host: str = Field(
        default="",
        description="address at which /healthz, /readyz and /metrics listen. Empty: all of IPv4 and IPv6.",
    )
    http_port: int = Field(
        default=8080, ge=0, le=65535, description="port of /healthz, /readyz and /metrics; 0: any free port."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="lowest level of log messages."
    )
    log_format: Literal["json", "text"] = Field(
        default="json", description="json: one object per line, for machines; text: for a terminal."
    )

    @field_validator("namespaces", "template_privileges", "node_folders")
    @classmethod
    def _names(cls, value: str) -> str:
        return ",".join(sorted({part.strip() for part in value.split(",") if part.strip()}))

    @field_validator("template_privileges")
    @classmethod
    def _privileges(cls, value: str) -> str:
        unknown = [one for one in value.split(",") if one not in ("", EVERY, *Privilege)]
        if unknown:
            raise ValueError(f"{unknown[0]} is not one of {', '.join(Privilege)}")
        return value

    @field_validator("node_folders")
    @classmethod
    def _folders(cls, value: str) -> str:
        folders = [one.rstrip("/") for one in value.split(",")] if value not in ("", "none") else []
        wrong = [one for one in folders if not _FOLDER.fullmatch(one)]
        if wrong:
            raise ValueError(
                f"{wrong[0] or '/'} is not the absolute path of a folder, such as /var/lib/speculative-cache"
            )
        return ",".join(folders)

    @field_validator("step_metrics_from")
    @classmethod
    def _peers(cls, value: str) -> str:
        peers = _parse_json(value or "[]")
        known = {"podSelector", "namespaceSelector", "ipBlock"}
        if not isinstance(peers, list) or not all(isinstance(one, dict) and one and set(one) <= known for one in peers):
            raise ValueError(f"must be a JSON list of objects with the keys {', '.join(sorted(known))}")
        return value

    @field_validator("pod_monitor_labels")
    @classmethod
    def _monitor_labels(cls, value: str) -> str:
        labels = _parse_json(value or "{}")
        parts = (*labels, *labels.values()) if isinstance(labels, dict) else (None,)
        if not all(isinstance(one, str) and _LABEL.fullmatch(one) for one in parts):
            raise ValueError('must be a JSON object of labels, such as {"release": "kube-prometheus-stack"}')
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _together(self) -> Settings:
        if self.prometheus_timeout_seconds >= self.tick_seconds:
            raise ValueError(f"{PREFIX}PROMETHEUS_TIMEOUT_SECONDS must be less than {PREFIX}TICK_SECONDS")
        return self

    @property
    def for_jobs(self) -> tuple[tuple[str, str], ...]:
        """Variables that Jobs read like the operator, as far as they are set."""
        given = {"PLAIN_HTTP_REGISTRIES": self.plain_http_registries, "SOURCE_TIMEOUT": self.source_timeout}
        return tuple((f"{PREFIX}{name}", f"{value}") for name, value in given.items() if value)

    @property
    def privilege_list(self) -> tuple[str, ...]:
        """Privileges that templates may ask for."""
        return tuple(self.template_privileges.split(",")) if self.template_privileges else ()

    @property
    def node_folder_list(self) -> tuple[str, ...]:
        """Folders of nodes that caches may lie in; empty means none."""
        return tuple(self.node_folders.split(",")) if self.node_folders else ()

    @property
    def step_metrics_peers(self) -> tuple[Mapping[str, Any], ...]:
        """Peers that may reach the port of step telemetry; empty means everybody."""
        return tuple(json.loads(self.step_metrics_from or "[]"))

    @property
    def monitor_labels(self) -> Mapping[str, str]:
        """Labels of PodMonitors of serving pods."""
        labels: dict[str, str] = json.loads(self.pod_monitor_labels or "{}")
        return labels

    @property
    def namespace_list(self) -> tuple[str, ...]:
        """Namespaces to serve; empty means all."""
        return tuple(self.namespaces.split(",")) if self.namespaces else ()


def load() -> Settings:
    """Settings of this process. Raises SettingsError with one line per bad variable."""
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError(
            "\n".join(_explain(item["loc"], item["msg"], item["input"]) for item in error.errors())
        ) from None


def _parse_json(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})") from None


def _explain(location: tuple[int | str, ...], message: str, value: object) -> str:
    text = message.removeprefix("Value error, ")
    if location:
        text = f"{PREFIX}{str(location[0]).upper()}={value!r}: {text[:1].lower()}{text[1:]}"
    return without_credentials(text)
