"""What a Prometheus that is not to be believed answers: pure changes of a true answer, named by what they pretend.

A matrix is the parsed `data.result` of an instant query for raw samples. Used by the faults of Prometheus.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Matrix = list[dict[str, Any]]
Lie = Callable[[Matrix], Matrix]
NONSENSE = ("NaN", "-1", "+Inf", "1e308", "-Inf", "0")


def _changed(matrix: Matrix, change: Callable[[str, int, float], float | str], part: str = "") -> Matrix:
    """Every value as `change(name, place, value)` has it, in series whose name holds `part`."""
    told = copy.deepcopy(matrix)
    for series in told:
        name = series["metric"].get("__name__", "")
        if part in name:
            pairs = enumerate(series.get("values", ()))
            series["values"] = [[pair[0], str(change(name, place, float(pair[1])))] for place, pair in pairs]
    return told


def absurd(matrix: Matrix) -> Matrix:
    """Values that no counter can have."""
    return _changed(matrix, lambda _, place, __: NONSENSE[place % len(NONSENSE)])


def useless_drafts(matrix: Matrix) -> Matrix:
    """Not one draft was ever accepted."""
    return _changed(matrix, lambda *_: 0.0, "accepted")


def slow_engine(matrix: Matrix) -> Matrix:
    """Every step took twenty times as long."""
    return _changed(matrix, lambda _, __, value: 20.0 * value, "seconds")


def fast_engine(matrix: Matrix) -> Matrix:
    """Every step took a twentieth of its time."""
    return _changed(matrix, lambda _, __, value: value / 20.0, "seconds")


def backwards(matrix: Matrix) -> Matrix:
    """Counters fall."""
    told = copy.deepcopy(matrix)
    for series in told:
        values = series.get("values", ())
        reverse = [pair[1] for pair in reversed(values)]
        series["values"] = [[pair[0], value] for pair, value in zip(values, reverse, strict=True)]
    return told


def halved(matrix: Matrix) -> Matrix:
    """Every other series is missing."""
    return matrix[::2]


def of_next_week(matrix: Matrix) -> Matrix:
    """Samples from the future."""
    told = copy.deepcopy(matrix)
    for series in told:
        series["values"] = [[pair[0] + 7 * 86400, pair[1]] for pair in series.get("values", ())]
    return told


ALL: Sequence[Lie] = (absurd, useless_drafts, slow_engine, fast_engine, backwards, halved, of_next_week)


def about_pod(pod: str, lie: Lie) -> Lie:
    """The lie about one pod, the truth about all others."""

    def told(matrix: Matrix) -> Matrix:
        own = [series for series in matrix if series["metric"].get("pod") == pod]
        return [*(series for series in matrix if series["metric"].get("pod") != pod), *lie(own)]

    return told


def answer_with(lie: Lie, body: bytes) -> bytes:
    """An answer of the query API with its matrix changed; what is none stays as it is."""
    try:
        answer = json.loads(body)
        matrix = answer["data"]["result"]
    except (ValueError, KeyError, TypeError):
        return body
    answer["data"]["result"] = lie(matrix)
    return json.dumps(answer).encode()


def endless() -> Iterator[bytes]:
    """A well-formed answer that never ends, piece by piece."""
    yield b'{"status":"success","data":{"resultType":"matrix","result":['
    number = 0
    while True:
        rows = ({"metric": {"__name__": "vllm:generation_tokens_total", "pod": f"none-{number + n}"},
                 "values": [[1.0e9 + 5 * at, str(at)] for at in range(12)]} for n in range(200))  # fmt: skip
        yield "".join(json.dumps(row) + "," for row in rows).encode()
        number += 200
