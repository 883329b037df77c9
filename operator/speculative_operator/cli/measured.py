"""Rows of a catalogue from what `speculator.measure` found: the best first, so that `auto` picks it elsewhere without
measuring. Used by `pairs --measured`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from speculative_operator.cli.cluster import Object
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.reading import mapping, text
from speculative_operator.pairing.catalogue_rows import COLUMNS, CatalogueError, parse
from speculative_operator.reconcile.snapshot import candidates, picked
from speculative_operator.reconcile.snapshot.candidates import Result
from speculative_operator.reconcile.snapshot.picked import Row

_ORDER = (Result.EQUIVALENT, Result.UNDECIDED, Result.WORSE)
"""Verdicts of rows that did not take the place of what served; those that failed are no rows."""


def csv_of(objects: Iterable[Object]) -> str:
    """CSV text with a row for each speculator that was measured; the header alone where none was. A row that a
    catalogue would not take is left out."""
    found: dict[tuple[str, str, str], Mapping[str, str]] = {}
    for row in (row for body in objects for row in _rows(body)):
        with suppress(CatalogueError):
            if parse(_text((row,)), "measured"):
                found.setdefault((row["verifier"], row["speculator"], row["method"]), row)
    return _text(found.values())


def _rows(body: Object) -> Iterator[Mapping[str, str]]:
    """Rows of one object: what serves, then what was measured against it."""
    known = candidates.read(mapping(body, "status", "measured"))
    pick = picked.read(mapping(body, "status", "picked"))
    if known is None or not known.verdicts:
        return
    told = {one.row.key: one for one in known.verdicts}
    date = timestamp(max(one.at for one in known.verdicts))[:10]
    if pick is not None and pick.row is not None:
        yield _row(body, pick.row, told.get(pick.row.key), date)
    others = [one for one in known.verdicts if one.result in _ORDER and (pick is None or one.row.key != pick.key)]
    for one in sorted(others, key=lambda told: _ORDER.index(told.result)):
        yield _row(body, one.row, one, date)


def _row(body: Object, row: Row, told: candidates.Verdict | None, date: str) -> Mapping[str, str]:
    where = f"measured in {text(body, 'metadata', 'namespace')}/{text(body, 'metadata', 'name')}"
    product = text(body, "spec", "accelerator", "product")
    cells = {
        "verifier": text(body, "spec", "verifier", "model").split("://", 1)[-1].split("@", 1)[0],
        "speculator": row.uri.removeprefix("hf://"),
        "method": row.method.value,
        "one_pass": "true" if row.one_pass else "",
        "k": str(row.k or ""),
        "source": f"{where}{f' on {product}' if product else ''}",
        "date": date,
    }
    if told is not None and told.length is not None:
        cells |= {"acceptance_length": f"{told.length:.2f}", "acceptance_k": str(told.length_k)}
        cells |= {"acceptance_on": "requests of the object", "acceptance_source": where}
    return cells


def _text(rows: Iterable[Mapping[str, str]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
