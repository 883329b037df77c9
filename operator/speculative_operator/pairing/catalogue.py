"""Speculators that are publicly known for a verifier: data of the package, and rows that a user adds.

Called by `speculative pairs` and, for `speculator: {auto: true}`, by `engines.pairs`. The rows lie in
`data/catalogue.csv`; each names its source. A row that cannot be read is an error with row, column, value and remedy,
never left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache, lru_cache
from importlib import resources

from speculative_operator.pairing.catalogue_rows import Entry, parse
from speculative_operator.pairing.ranking import Worth

_SUFFIX = re.compile(
    r"[-_.](?:fp8|fp4|nvfp4|nvfp4a16|mxfp4|mxfp6|mxfp8|int[48]|bf16|fp16|awq|gptq|gguf|bnb|autoround|quark|dynamic|"
    r"static|block|pertensor|per[-_]?tensor|per[-_]?channel|quantized|unquantized|compressed|compressed[-_]tensors|"
    r"[2-8][-_]?bits?|w[2348]a(?:4|8|16|fp8)|(?:fp8)?kv|g\d+|marlin|exl\d|mlx|dwq|hqq|eetq|torchao|qat|unsloth|"
    r"q[2-8]_(?:[01k]|k_[sml]))$"
)
"""An end of a name that tells the number format of the same weights, in lower case."""
_RENAMED = "meta-llama-"
"""Meta's repositories lost this prefix: `Meta-Llama-3.1-8B` is `Llama-3.1-8B`."""
REMEDY = "set speculator.method and speculator.model, or add your own row to the catalogue"
"""What to do where the catalogue has no speculator."""


class Match(IntEnum):
    """How an entry's verifier matches the verifier of the spec; the smaller, the surer."""

    EXACT = 0
    """The same repository, or the same name elsewhere."""
    DERIVED = 1
    """The spec's model card names the entry's verifier as its base."""
    NAMED = 2
    """The spec's model has the entry's name and a quantization's, such as `Qwen3-8B-FP8-dynamic`."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The entry that was picked, or why none was."""

    entry: Entry | None
    reason: str
    """A sentence, for the condition and the event."""
    match: Match | None = None
    chosen: str = ""
    """The pick and its reason, without the verb; empty without a pick."""
    ranked: tuple[Entry, ...] = ()
    """All entries that can be served, the best first."""


@dataclass(frozen=True, eq=False, slots=True)
class Catalogue:
    """Rows of the catalogue at one moment. Two are equal only where they are one object, so results can be kept."""

    entries: tuple[Entry, ...]

    def entries_for(self, verifier: str, base_models: tuple[str, ...] = ()) -> tuple[tuple[Match, Entry], ...]:
        """Entries for `verifier` (`organisation/model`, with or without scheme and revision), the surest match first;
        kept, because every reconcile asks. `pick` orders them for one object.

        `base_models` are those of its model card: quantized and tuned derivatives are served by their base's entries.
        """
        return _entries_for(self, verifier, base_models)


@lru_cache(maxsize=4096)
def _entries_for(catalogue: Catalogue, verifier: str, base_models: tuple[str, ...]) -> tuple[tuple[Match, Entry], ...]:
    matched = ((_match(one, verifier, base_models), one) for one in catalogue.entries)
    found = [(match, one) for match, one in matched if match is not None]
    return tuple(sorted(found, key=lambda pair: (pair[0], *_rank(pair[1]))))


@cache
def load_packaged() -> Catalogue:
    """The package's rows alone."""
    file = resources.files("speculative_operator.pairing").joinpath("data", "catalogue.csv")
    return Catalogue(parse(file.read_text(encoding="utf-8"), "catalogue.csv"))


def catalogue_of(extra: str, name: str = "extra rows") -> Catalogue:
    """The package's rows with those of `extra` (the text of a CSV file with the same columns).

    A row of `extra` stands above one of the package for the same verifier, speculator and method. Raises
    CatalogueError, which names `name` and the row.
    """
    if not extra.strip():
        return load_packaged()
    own = tuple(replace(one, added=True) for one in parse(extra, name))
    replaced = {one.key for one in own}
    return Catalogue((*own, *(one for one in load_packaged().entries if one.key not in replaced)))


def pick(
    verifier: str, base_models: tuple[str, ...], among: Catalogue, worth: Callable[[Entry], Worth | None]
) -> Choice:
    """Pick the best entry for `verifier`. `worth`: what an entry is worth to the object; None for one that its engine
    does not serve.

    Surer matches go first; then a user's own rows in their order, entries for all text, and the order of `Worth`; at
    last those whose source tells K, the published acceptance, the newer.
    """
    known = among.entries_for(verifier, base_models)
    if not known:
        return Choice(None, f"the catalogue has no speculator for {_short_name(verifier)}: {REMEDY}")
    served = sorted(
        ((match, one, found) for match, one in known if (found := worth(one)) is not None),
        key=lambda row: (row[0], () if row[1].added else (bool(row[1].trained_for), *row[2].order)),
    )
    if not served:
        unserved = ", ".join(sorted({one.method.value for _, one in known}))
        reason = (
            f"the catalogue has only {unserved} for {_short_name(verifier)}, which this engine does not serve: {REMEDY}"
        )
        return Choice(None, reason)
    match, entry, best = served[0]
    place = "the only one known" if len(known) == 1 else f"the only one of {len(known)} that can be served"
    if len(served) > 1:
        _, second, less = served[1]
        place = f"first of {len(served)} that the engine serves; next {_named(second)}: {less}"
    chosen = _describe_choice(match, entry, verifier, f"{'your own row; ' * entry.added}{best}; {place}")
    return Choice(entry, f"picked {chosen}", match, chosen, tuple(one for _, one, _ in served))


def _short_name(verifier: str) -> str:
    return verifier.split("://", 1)[-1].split("@", 1)[0]


def _match(entry: Entry, verifier: str, base_models: Sequence[str]) -> Match | None:
    own = tail(entry.verifier)
    if own == tail(verifier):
        return Match.EXACT
    if any(own == tail(base) for base in base_models):
        return Match.DERIVED
    names = {stem(name) for name in (verifier, *base_models)}
    return Match.NAMED if stem(entry.verifier) in names else None


def _rank(entry: Entry) -> tuple[bool | float | str, ...]:
    """Sort key of an entry among those of equal worth: the smallest is the best; docs/pairs.md tells the order."""
    if entry.added:
        return (False,)
    newest = "".join(chr(0x7F - ord(letter)) for letter in entry.date.ljust(10, "-"))
    return (
        True,
        bool(entry.trained_for),
        entry.k is None,
        -(entry.acceptance_length or 0.0),
        newest,
        entry.speculator,
    )


def _named(entry: Entry) -> str:
    return f"{entry.title} ({entry.method.value})"


def _describe_choice(match: Match, entry: Entry, verifier: str, place: str) -> str:
    made = {
        Match.EXACT: f"made for {entry.verifier}",
        Match.DERIVED: f"made for {entry.verifier}, which {_short_name(verifier)} is derived from",
        Match.NAMED: f"made for {entry.verifier}, of which {_short_name(verifier)} is a quantization by its name",
    }[match]
    figures = []
    if entry.trained_for:
        figures.append(f"for {entry.trained_for}")
    if entry.acceptance_length is not None:
        at = f" at K = {entry.acceptance_k}" if entry.acceptance_k else ""
        figures.append(f"published acceptance length {entry.acceptance_length:g}{at} ({entry.acceptance_on})")
    if entry.k is not None:
        figures.append(f"K = {entry.k} by its source")
    figures.append(place)
    return f"{_named(entry)}: {made}; {'; '.join(figures)}; source: {entry.source}"


def tail(name: str) -> str:
    """Last part of a name or URI, without revision, in lower case: `hf://Qwen/Qwen3-8B@main` -> `qwen3-8b`."""
    plain = name.strip().split("://", 1)[-1].split("@", 1)[0].rstrip("/")
    last = plain.rsplit("/", 1)[-1].lower()
    return last.replace(_RENAMED, "llama-", 1) if last.startswith(_RENAMED) else last


def stem(name: str) -> str:
    """`tail` without the words that name a quantization: `RedHatAI/Qwen3-8B-FP8-dynamic` -> `qwen3-8b`.

    The one normaliser of model names: for rows, for the shapes that `plan` and the tuner start from, and for the judge.
    """
    found = tail(name)
    while (shorter := _SUFFIX.sub("", found)) != found and shorter:
        found = shorter
    return found
