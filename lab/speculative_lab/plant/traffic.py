"""Requests of random worlds: when they come, how long they are, how well their texts can be foreseen."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant.types import Floats, Ints

LONGEST = 32_000
"""Tokens of context at most."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts or answers."""

    mean: float
    spread: float
    """Standard deviation of the logarithm; of a Pareto distribution 1 / its exponent."""
    pareto: bool = False

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """`count` of them, at least one token each."""
        if self.pareto:
            exponent = max(1.0 / max(self.spread, 0.1), 1.3)
            raw = (1.0 + rng.pareto(exponent, count)) * self.mean * (exponent - 1) / exponent
        else:
            raw = rng.lognormal(math.log(self.mean) - self.spread**2 / 2, self.spread, count)
        return np.clip(np.ceil(raw), 1, LONGEST / 2)


@dataclass(frozen=True, slots=True)
class Texts:
    """One kind of request."""

    prompt: Lengths
    answer: Lengths
    skill: float
    skill_sd: float
    match: float = 0.5


@dataclass(frozen=True, slots=True)
class Traffic:
    """All that comes to one replica."""

    texts: tuple[Texts, ...]
    """In force one after the other, in equal parts of time."""
    rates: Floats = field(default_factory=lambda: np.zeros(0))
    """Requests per second that come by themselves, by second."""
    lump: float = 1.0
    """Mean number that come at the same instant."""
    users: int = 0
    think: float = 0.0
    turns: float = 1.0
    """Mean length of a conversation; its context grows."""
    fastest: float = 0.01
    """Seconds per token that no answer beats, for how many requests a user may get through."""


def rows_of(rng: np.random.Generator, texts: Texts, count: int) -> Floats:
    """`count` requests of one kind; their moments are still to be set."""
    rows = np.zeros((count, at.REQUEST_FIELDS))
    rows[:, at.PROMPT] = texts.prompt.draw(rng, count)
    rows[:, at.OUT] = np.minimum(texts.answer.draw(rng, count), 4096)
    rows[:, at.SKILL] = texts.skill + texts.skill_sd * rng.normal(size=count)
    concentration = 3.0
    share = min(max(texts.match, 0.02), 0.98)
    rows[:, at.MATCH] = rng.beta(share * concentration, (1 - share) * concentration, count)
    rows[:, at.SEED] = rng.integers(1, 1 << 31, count)
    rows[:, at.NEXT] = -1
    rows[:, at.FIRST] = -1
    rows[:, at.SCHEDULED] = -1
    rows[:, at.ENDED] = -1
    return rows


def open_rows(rng: np.random.Generator, traffic: Traffic) -> Floats:
    """Requests that come by themselves, in order of time."""
    seconds = len(traffic.rates)
    counts = rng.poisson(traffic.rates / traffic.lump)
    moments = np.repeat(np.arange(seconds), counts) + rng.random(int(counts.sum()))
    moments = np.sort(moments)
    if traffic.lump > 1:
        moments = np.repeat(moments, rng.geometric(1.0 / traffic.lump, len(moments)))
    parts = len(traffic.texts)
    rows = np.zeros((len(moments), at.REQUEST_FIELDS))
    which = np.minimum((moments / max(seconds, 1) * parts).astype(int), parts - 1)
    for number, texts in enumerate(traffic.texts):
        drawn = rows_of(rng, texts, len(moments))
        rows[which == number] = drawn[which == number]
    rows[:, at.ARRIVE] = moments
    return rows


def closed_rows(rng: np.random.Generator, traffic: Traffic, seconds: float, offset: int) -> tuple[Floats, Ints, Floats]:
    """Requests of users who wait for their answers: rows, each user's first row, and when it is asked."""
    texts = traffic.texts[0]
    each = seconds / (traffic.think + texts.answer.mean * traffic.fastest + 1e-3)
    count = int(min(max(1.6 * each + 8, 8), 60_000 / max(traffic.users, 1)))
    rows = rows_of(rng, texts, count * traffic.users)
    rows[:, at.THINK] = rng.exponential(traffic.think, len(rows)) if traffic.think else 0.0
    for user in range(traffic.users):
        begin = user * count
        rows[begin : begin + count, at.USER] = user
        rows[begin : begin + count - 1, at.NEXT] = offset + np.arange(begin + 1, begin + count)
        held = 0.0
        for row in rows[begin : begin + count]:
            if held == 0.0 or rng.random() < 1.0 / traffic.turns or held > LONGEST / 2:
                held = 0.0
            row[at.PRIOR] = held
            held += row[at.PROMPT] + row[at.OUT]
    first = offset + np.arange(traffic.users, dtype=np.int64) * count
    returns = rng.uniform(0, max(traffic.think, 5.0), traffic.users)
    return rows, first, returns


def requests(rng: np.random.Generator, traffic: Traffic, seconds: float) -> tuple[Floats, int, Ints, Floats]:
    """All rows, how many of them come by themselves, users' first rows and moments."""
    opened = open_rows(rng, traffic)
    if not traffic.users:
        return opened, len(opened), np.zeros(0, dtype=np.int64), np.zeros(0)
    rows, first, returns = closed_rows(rng, traffic, seconds, len(opened))
    return np.concatenate([opened, rows]), len(opened), first, returns
