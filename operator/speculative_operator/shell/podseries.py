"""Answers of Prometheus, series by series while their bytes come, and what of them belongs to our pods, within bounds.
Filled by `prometheus`, kept by `rounds`.

A whole answer parsed at once takes ten times its size. Here no more than one piece and one series are held as text, so
that what an answer takes is what is kept of it. A series is a pod's when it bears the pod's name and comes from the
pod's address. A pod that exports too much loses its own figures; a namespace that does, those of the namespace.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.observation import Gap, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.registry import LABELS

LARGEST_SERIES = 2**20
"""Characters of one series: an hour of samples each second has a tenth."""
LARGEST_ENVELOPE = 2**16
"""Characters before the first series, and after the last one."""
_RESULT = re.compile(r'"result"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_NO_STATUS = "the answer says nothing of success; check that the URL is that of Prometheus"
_DECODER = json.JSONDecoder()
SERIES_OF_A_POD = 2000
"""What an engine and its payload export under the names asked for is 40 series, 40 to 90 of its latencies, with step
telemetry 200 to 700 more, and fifteen for each of at most 64 label sets of tried blocks."""
SAMPLES_OF_A_UNIT = 16
"""A series with so many samples takes about 2 KiB, which is one unit of the bounds on what is held."""
_HOST = re.compile(r"(?:\[([^\]]*)\]|([^:]*|[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*))(?::\d+)?")


class BadAnswerError(Exception):
    """Prometheus answered something that is not a whole, successful result."""


class TooLargeError(BadAnswerError):
    """The answer is larger than what may be held."""


def entries(pieces: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """Each entry of `data.result`, unread.

    Raises BadAnswerError, also after the last one: only then it is known whether the answer was whole.
    """
    texts = map(codecs.getincrementaldecoder("utf-8")("replace").decode, pieces)
    text = head = ""
    for more in texts:
        text += more
        found = _RESULT.search(text)
        if found is not None:
            head, text = text[: found.end()], text[found.end() :]
            break
        if len(text) > LARGEST_ENVELOPE:
            raise BadAnswerError("the answer is not a range vector; check that the URL is that of Prometheus")
    at = 0
    while head:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        if text[at : at + 1] == "]":
            break
        try:
            entry, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            more = next(texts, "")
            if not more or len(text) - at > LARGEST_SERIES or isinstance(error, RecursionError):
                raise BadAnswerError("the answer ends within a series, or has none") from error
            text, at = text[at:] + more, 0
        else:
            yield entry
    check(head + _rest(text[at:], texts))


def _rest(text: str, more: Iterable[str]) -> str:
    parts: list[str] = []
    size = 0
    for part in chain((text,), more):
        size += len(part)
        if size > 2 * LARGEST_ENVELOPE:
            raise TooLargeError("the answer is larger than its series")
        parts.append(part)
    return "".join(parts)


def check(text: str) -> None:
    """Raises BadAnswerError unless `text`, an answer without its series, is of a whole and successful matrix."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadAnswerError("the answer is not JSON; check that the URL is that of Prometheus") from error
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise BadAnswerError(f"the query failed: {_NO_STATUS}")
    if answer.get("warnings") or answer.get("isPartial"):
        raise BadAnswerError("the answer may be partial: it has warnings, or says so")
    data = answer.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        raise BadAnswerError("the answer has no range vector")


def labels_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """Labels of a series, `__name__` among them. Raises BadAnswerError."""
    try:
        labels = {str(name): str(value) for name, value in entry["metric"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise BadAnswerError("the answer has a malformed series") from error
    if "__name__" not in labels:
        raise BadAnswerError("the answer has a series without a name")
    return labels


def samples_of(entry: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """Samples of a series; NaN and infinities stay, for the engine adapter to judge. Raises BadAnswerError."""
    try:
        return tuple((float(moment), float(value)) for moment, value in entry.get("values") or ())
    except (TypeError, ValueError) as error:
        raise BadAnswerError("the answer has a malformed series") from error


class Reached(tuple[str, ...]):
    """Where a pod is reached: its IP addresses, and `port`, that of its engine, which speaks TLS where `encrypted`."""

    port = names.SERVING_PORT
    encrypted = False

    @classmethod
    def at_port(cls, addresses: Iterable[str], port: int, *, encrypted: bool = False) -> Reached:
        """The place of a pod with these addresses, whose engine listens at `port`."""
        found = cls(addresses)
        found.port, found.encrypted = port, encrypted
        return found


Addresses = Mapping[str, tuple[str, ...]]
"""Pod -> its IP addresses; a `Reached` where another port than the usual one is to be read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Figures of one namespace."""

    series: Mapping[str, tuple[Series, ...]] = field(default_factory=dict)
    """Pod -> its series."""
    gaps: Mapping[str, Gap] = field(default_factory=dict)
    """Pod -> why it has no series."""
    time: float | None = None
    """Unix time of the newest sample, where the operator itself took it; else None."""
    direct: str = ""
    """Why the operator read the pods itself; empty where Prometheus told of them."""


def host_of(address: str) -> str:
    """The host of HOST, HOST:PORT, [HOST]:PORT or a bare IPv6 address."""
    found = _HOST.fullmatch(address)
    return (found[1] or found[2] or "") if found else address


def units(series: Iterable[Series]) -> int:
    """Approximate memory that the series take, in units of 2 KiB."""
    return sum(1 + len(one.samples) // SAMPLES_OF_A_UNIT for one in series)


class PodSeries:
    """Collects the series of `pods`. `label` names the label with the address of the scrape's target; where it is
    empty, no address is compared. `pod_label` names the label with the pod's name."""

    def __init__(self, pods: Addresses, label: str, most: int, pod_label: str = "pod") -> None:
        self.gaps: dict[str, Gap] = {}
        self._pods = pods
        self._label = label
        self._pod_label = pod_label
        self._room = most
        self._series: dict[str, list[Series]] = {}
        self._labels: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        """Label sets are shared: all counters of an engine have the same one."""

    def add(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Keep the series of our pods. Raises TooLargeError above `most` units, and what reading the answer raises."""
        for entry in entries:
            labels = labels_of(entry)
            pod = labels["pod"] = labels.get(self._pod_label, "")
            if pod not in self._pods or pod in self.gaps or not self._comes_from(pod, labels):
                continue
            own = self._series.setdefault(pod, [])
            if len(own) >= SERIES_OF_A_POD:
                message = f"the pod exports more than {SERIES_OF_A_POD} series with names of an engine's metrics"
                self.gaps[pod] = Gap(Reason.METRICS_ABSURD, message)
                self._room += units(self._series.pop(pod))
                continue
            track = Series(labels["__name__"], self._shared_labels(labels), samples_of(entry))
            self._room -= units((track,))
            if self._room < 0:
                raise TooLargeError("the namespace has more series than SPECULATIVE_PROMETHEUS_SERIES allows")
            own.append(track)

    @property
    def silent(self) -> list[str]:
        """Pods of which neither series nor gap was found."""
        return [pod for pod in self._pods if pod not in self._series and pod not in self.gaps]

    def answer(self) -> Answer:
        """The series and gaps that were found. A pod with a gap has no series, because they may be a part of its
        own."""
        return Answer({pod: tuple(own) for pod, own in self._series.items() if pod not in self.gaps}, self.gaps)

    def _comes_from(self, pod: str, labels: Mapping[str, str]) -> bool:
        return not self._label or host_of(labels.get(self._label, "")) in self._pods[pod]

    def _shared_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        wanted = {name: value for name, value in labels.items() if name in LABELS}
        return self._labels.setdefault(tuple(wanted.items()), wanted)
