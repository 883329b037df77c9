"""The faults, in the order in which a run does them. Those of a short run, a part of `make test`, are `SHORT`."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.faults.fault import Fault, Nothing, PodDeleted
from chaos.faults.process import ClockBack, ClockForth, Kills, TwoLeaders, TwoOperators
from chaos.faults.servers import (
    ApiServerGone,
    ApiServerHanging,
    ApiServerThrottling,
    EtcdRestored,
    PodLying,
    PrometheusBelievable,
    PrometheusGone,
    PrometheusHanging,
    PrometheusHuge,
    PrometheusLying,
)

CONTROL: type[Fault] = PodDeleted
"""Harm that the judge must find."""
ALL: Sequence[type[Fault]] = (
    Nothing,
    Kills,
    ApiServerGone,
    ApiServerHanging,
    ApiServerThrottling,
    EtcdRestored,
    PrometheusGone,
    PrometheusHanging,
    PrometheusLying,
    PrometheusBelievable,
    PrometheusHuge,
    PodLying,
    ClockForth,
    ClockBack,
    TwoOperators,
    TwoLeaders,
    CONTROL,
)
SHORT: Sequence[type[Fault]] = (Kills, ApiServerHanging, PrometheusLying, CONTROL)
