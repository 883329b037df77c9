"""The catalogue: its rows, how they are found, what is picked and said, and errors in a user's rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from speculative_operator.api.scalars import ModelUri
from speculative_operator.domain.spec import Method
from speculative_operator.pairing import catalogue
from speculative_operator.pairing.catalogue import Catalogue, Choice, Match, catalogue_of, load_packaged, stem
from speculative_operator.pairing.catalogue_rows import COLUMNS, LARGEST_K, CatalogueError, Entry, parse
from speculative_operator.pairing.ranking import Worth

PACKAGED = load_packaged()
ALL = PACKAGED.entries
ALIKE = Worth(0, known=True, percent=40.0)
HEADER = "verifier,speculator,method,source,date,k,acceptance_length,acceptance_k,acceptance_on,one_pass"
GOOD = "org/model,org/head,eagle3,https://example.org/card,2026-08-01,3,2.5,3,MT-Bench,"


def row(**changed: str) -> str:
    cells = dict(zip(HEADER.split(","), GOOD.split(","), strict=True)) | changed
    return ",".join(cells.values())


def extra(*lines: str) -> str:
    return "\n".join((HEADER, *lines))


def test_every_row_names_its_source_and_what_serves_it() -> None:
    assert len(ALL) >= 150
    assert len({one.verifier for one in ALL}) >= 90
    for one in ALL:
        assert one.source.startswith("https://")
        assert one.acceptance_length is None or one.acceptance_source.startswith("https://")
        assert "/" in one.verifier
        assert bool(one.speculator) or one.method.may_sit_in_verifier
        assert one.speculator != one.verifier
    assert {one.method for one in ALL} >= {Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DFLASH, Method.DSPARK}
    assert sum(one.acceptance_length is not None for one in ALL) >= 30


def test_dspark_is_not_promised_for_checkpoints_without_it() -> None:
    methods = {one.method for match, one in PACKAGED.entries_for("deepseek-ai/DeepSeek-V4-Pro") if match is Match.EXACT}
    assert methods == {Method.MTP}


@pytest.mark.parametrize(
    ("verifier", "base_models", "match"),
    [
        ("Qwen/Qwen3-8B", (), Match.EXACT),
        ("hf://Qwen/Qwen3-8B@main", (), Match.EXACT),
        ("s3://bucket/models/qwen3-8b/", (), Match.EXACT),
        ("someone/tuned", ("Qwen/Qwen3-8B",), Match.DERIVED),
        ("RedHatAI/Qwen3-8B-FP8-dynamic", (), Match.NAMED),
        ("Qwen/Qwen3-8B-AWQ", (), Match.NAMED),
        ("x/Qwen3-8B-quantized.w4a16", (), Match.NAMED),
        ("x/tuned", ("x/Qwen3-8B-GPTQ-Int4",), Match.NAMED),
        ("Qwen/Qwen3-8B-Base", (), None),
        ("Qwen/Qwen3-80B", (), None),
        ("Qwen/Qwen3", (), None),
    ],
)
def test_how_a_verifier_is_recognised(verifier: str, base_models: tuple[str, ...], match: Match | None) -> None:
    found = [(how, one) for how, one in PACKAGED.entries_for(verifier, base_models) if one.verifier == "Qwen/Qwen3-8B"]
    assert {how for how, _ in found} == ({match} if match is not None else set())


def pick(verifier: str, serves: Callable[[Entry], bool] = lambda _: True) -> Choice:
    """The pick where what can be served is worth the same."""
    return catalogue.pick(verifier, (), PACKAGED, lambda one: ALIKE if serves(one) else None)


def test_the_choice_is_explained() -> None:
    choice = pick("RedHatAI/Qwen3-8B-FP8-dynamic", lambda one: one.method is Method.EAGLE3)
    assert choice.entry is not None
    assert choice.entry.speculator == "RedHatAI/Qwen3-8B-speculator.eagle3", "its source tells K"
    assert choice.reason == (
        "picked RedHatAI/Qwen3-8B-speculator.eagle3 (eagle3): made for Qwen/Qwen3-8B, of which "
        "RedHatAI/Qwen3-8B-FP8-dynamic is a quantization by its name; K = 5 by its source; "
        "K follows the load, +40 % expected over 1 to 64 requests; first of 6 that the engine serves; "
        "next AngelSlim/Qwen3-8B_eagle3 (eagle3): K follows the load, +40 % expected over 1 to 64 requests; "
        f"source: {choice.entry.source}"
    )
    inside = pick("zai-org/GLM-4.6").reason
    assert inside.startswith("picked the drafting layers of the verifier (mtp): made for zai-org/GLM-4.6; K = 1")
    assert "; the only one known; source" in inside
    assert "published acceptance length 4.81 at K = 7 (mean of" in pick("meta-llama/Llama-3.3-70B-Instruct").reason


def test_only_what_the_engine_serves_is_picked() -> None:
    dflash = pick("Qwen/Qwen3-8B", lambda one: one.method is Method.DFLASH).entry
    assert dflash is not None
    assert dflash.method is Method.DFLASH
    draft = pick("Qwen/Qwen3-8B", lambda one: one.method is Method.DRAFT_MODEL and not one.one_pass)
    assert draft.entry is not None
    assert (draft.entry.speculator, draft.entry.one_pass) == ("Qwen/Qwen3-0.6B", False)
    assert "; the only one of 10 that can be served; source" in draft.reason
    none = pick("zai-org/GLM-4.6", lambda one: one.method is Method.EAGLE3)
    assert none.entry is None
    assert none.reason.startswith(
        "the catalogue has only mtp for zai-org/GLM-4.6, which this engine does not serve: set speculator.method and"
    )
    unknown = pick("org/unknown")
    assert unknown.entry is None
    assert unknown.reason.startswith("the catalogue has no speculator for org/unknown: set speculator.method")


def test_drafters_for_one_language_go_last() -> None:
    assert pick("google/gemma-4-31B-it").ranked[-1].trained_for == "Korean"


def test_of_two_the_one_that_is_worth_more_goes_first() -> None:
    worth = {
        "a/constant": Worth(2, known=True, percent=200.0), "a/table": Worth(1, known=True, percent=150.0),
        "a/unknown": Worth(0, known=False, percent=100.0), "a/slow": Worth(0, known=True, percent=10.0),
        "a/fast": Worth(0, known=True, percent=20.0), "a/own": Worth(2, known=False, percent=0.0),
    }  # fmt: skip
    packaged = parse(extra(*(row(speculator=name) for name in worth if name != "a/own")), "rows")
    own = parse(extra(row(speculator="a/own")), "own.csv")
    rows = Catalogue((*packaged, *(replace(one, added=True) for one in own)))
    choice = catalogue.pick("org/model", (), rows, lambda one: worth[one.speculator])
    order = ["a/own", "a/fast", "a/slow", "a/unknown", "a/table", "a/constant"]
    assert [one.speculator for one in choice.ranked] == order
    assert "; your own row; one K for every load, changed by a rollout, " in choice.reason


def test_own_rows_go_first_and_replace_the_packages() -> None:
    text = extra(
        row(verifier="Qwen/Qwen3-8B", speculator="me/head"),
        row(verifier="qwen/qwen3-8b", speculator="REDHATAI/Qwen3-8B-speculator.eagle3", k="2"),
    )
    own = catalogue_of(text, "own.csv")
    found = own.entries
    assert len(found) == len(ALL) + 1
    chosen = catalogue.pick("Qwen/Qwen3-8B", (), own, lambda _: ALIKE).entry
    assert chosen is not None
    assert (chosen.speculator, chosen.added) == ("me/head", True)
    assert [one.k for one in found if one.speculator.lower() == "redhatai/qwen3-8b-speculator.eagle3"] == [2]
    assert catalogue_of("  \n") is load_packaged()


@pytest.mark.parametrize(
    ("speculator", "uri"),
    [
        ("org/head", "hf://org/head"),
        ("hf://org/head", "hf://org/head"),
        ("pvc://models/head", "pvc://models/head"),
        ("s3://bucket/a/head", "s3://bucket/a/head"),
        ("oci://reg.example:5000/org/head:v1", "oci://reg.example:5000/org/head:v1"),
    ],
)
def test_a_row_may_name_a_speculator_elsewhere_than_on_the_hub(speculator: str, uri: str) -> None:
    (found,) = parse(extra(row(speculator=speculator)), "own.csv")
    assert (found.uri, found.title) == (uri, speculator)


def test_every_speculator_of_the_package_is_one_that_the_api_takes() -> None:
    model = TypeAdapter(ModelUri)
    assert [model.validate_python(one.uri) for one in ALL if one.uri] == [one.uri for one in ALL if one.uri]
    assert {one.uri for one in ALL if not one.speculator} == {""}


def test_a_row_by_value() -> None:
    (found,) = parse(f"# ours\n\n{HEADER}\n{GOOD}\n", "own.csv")
    assert found == Entry(
        verifier="org/model",
        speculator="org/head",
        method=Method.EAGLE3,
        source="https://example.org/card",
        date="2026-08-01",
        k=3,
        acceptance_length=2.5,
        acceptance_k=3,
        acceptance_on="MT-Bench",
    )


@pytest.mark.parametrize(
    ("changed", "column", "remedy"),
    [
        ({"method": "egale3"}, "method", "use one of"),
        ({"method": "ngram"}, "method", "use one of"),
        ({"verifier": ""}, "verifier", "name the model"),
        ({"verifier": "two words"}, "verifier", "organisation/model"),
        ({"speculator": "a//b"}, "speculator", "organisation/model"),
        ({"speculator": "org/head@main"}, "speculator", "organisation/model"),
        ({"speculator": "org/-head"}, "speculator", "organisation/model"),
        ({"speculator": "http://example.org/head"}, "speculator", "organisation/model"),
        ({"speculator": "pvc://Claim/head"}, "speculator", "organisation/model"),
        ({"speculator": ""}, "speculator", "has weights of its own"),
        ({"source": ""}, "source", "documented"),
        ({"date": "21.8.2026"}, "date", "2026-08-21"),
        ({"date": "2026-13"}, "date", "2026-08-21"),
        ({"k": "0"}, "k", "1 to 64"),
        ({"k": "3.5"}, "k", "1 to 64"),
        ({"k": "65"}, "k", "1 to 64"),
        ({"acceptance_k": "x"}, "acceptance_k", "1 to 64"),
        ({"acceptance_length": "5.1"}, "acceptance_length", "from 1 to 4"),
        ({"acceptance_length": "0.9"}, "acceptance_length", "from 1 to 4"),
        ({"acceptance_length": "nan"}, "acceptance_length", "from 1 to 4"),
        ({"acceptance_on": ""}, "acceptance_on", "measured on"),
        ({"one_pass": "yes"}, "one_pass", "write true"),
        ({"source": "h" * 401}, "source", "shorten it"),
    ],
)
def test_what_is_wrong_is_told(changed: dict[str, str], column: str, remedy: str) -> None:
    with pytest.raises(CatalogueError) as caught:
        catalogue_of(extra(GOOD, row(**changed)), "own.csv")
    assert (caught.value.row, caught.value.column) == (3, column)
    assert str(caught.value).startswith(f"own.csv, row 3, column {column}")
    assert remedy in str(caught.value)
    assert changed[column][:80] in str(caught.value) if column in changed else True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("verifier,speculator,method,source\n", "row 1, column date: is missing"),
        (f"{HEADER},colour\n", "row 1, column colour: no column of that name"),
        (f"{HEADER},k\n", "row 1, column k: named twice"),
        (extra(GOOD + ",more"), "row 2: 11 cells under 10 columns"),
        (extra(GOOD, row(k="4")), "row 3, column speculator: 'org/head': row 2 says it"),
        ("# nothing\n", "row 1: begin with a row of columns"),
        (extra('"open'), "row 2"),
    ],
)
def test_what_is_no_table_is_told(text: str, said: str) -> None:
    with pytest.raises(CatalogueError) as caught:
        catalogue_of(text, "own.csv")
    assert said in str(caught.value)


def _csv(rows: list[list[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


CELL = st.text(max_size=30)


@given(st.text(max_size=400) | st.lists(st.lists(CELL, max_size=8), max_size=6).map(_csv))
def test_any_text_is_rows_or_one_error(text: str) -> None:
    told: list[CatalogueError] = []
    found: tuple[Entry, ...] = ()
    try:
        found = parse(text, "x")
    except CatalogueError as problem:
        told.append(problem)
    assert all(one.row >= 1 and one.remedy for one in told)
    assert len({one.key for one in found}) == len(found)


NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,12}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}\Z")
WITH_WEIGHTS = st.sampled_from([one for one in Method if not one.draft_free])


@given(
    verifier=NAMES,
    speculator=NAMES,
    method=WITH_WEIGHTS,
    k=st.none() | st.integers(1, LARGEST_K),
    length=st.none() | st.floats(1.0, 20.0).map(lambda value: round(value, 3)),
    words=st.text(st.characters(codec="ascii", categories=("L", "N", "P", "Zs")), min_size=1, max_size=40),
)
def test_a_written_row_is_read_as_it_was(
    verifier: str, speculator: str, method: Method, k: int | None, length: float | None, words: str
) -> None:
    said = words.strip() or "x"
    cells = {
        "verifier": verifier, "speculator": speculator, "method": method.value, "source": said, "date": "2026-08",
        "k": str(k or ""), "acceptance_length": "" if length is None else str(length), "acceptance_on": said,
    }  # fmt: skip
    (found,) = parse(_csv([list(COLUMNS), [cells.get(name, "") for name in COLUMNS]]), "x")
    assert (found.verifier, found.speculator, found.method) == (verifier, speculator, method)
    assert (found.k, found.acceptance_length, found.source) == (k, length, said)


FORMATS = (
    "-FP8", "-FP8-Dynamic", "-FP8-dynamic", "-FP8_dynamic", "-FP8-block", "-FP8-KV", "-AWQ", "-AWQ-INT4", "-GPTQ-Int4",
    "-GPTQ-Int8", "-NVFP4", "-NVFP4A16", "-MXFP4", "-quantized.w4a16", "-quantized.w8a8", "-W4AFP8", "-bnb-4bit",
    "-unsloth-bnb-4bit", "-MLX-8bit", "-qat-w4a16", "-Q4_K_M-GGUF", "-BF16",
)  # fmt: skip
"""Ends of names of quantized repositories."""
VERIFIERS = sorted({one.verifier for one in ALL})


@given(
    st.sampled_from(ALL), st.sampled_from(("", *FORMATS)), st.sampled_from(["Org/", "", "hf://RedHatAI/", "s3://b/x/"]),
    st.sampled_from([str, str.lower, str.upper]), st.booleans(),
)  # fmt: skip
def test_a_verifier_is_found_whoever_quantized_and_renamed_it(
    entry: Entry, end: str, organisation: str, case: Callable[[str], str], old: bool
) -> None:
    last = entry.verifier.rpartition("/")[2]
    last = f"Meta-{last}" if old and last.startswith("Llama-") else last
    found = PACKAGED.entries_for(f"{organisation}{case(last + end)}")
    assert entry in [one for _, one in found]
    assert {stem(one.verifier) for _, one in found} == {stem(entry.verifier)}


def test_two_models_of_the_catalogue_never_have_one_name() -> None:
    """Rows of one stem differ by an end that names a number format, as `-FP8`, and by nothing else."""
    for one in VERIFIERS:
        for other in VERIFIERS:
            if one < other and stem(one) == stem(other):
                assert other.removeprefix(one) in FORMATS, (one, other)


@given(NAMES, st.lists(st.sampled_from(FORMATS), max_size=2))
def test_quantizations_share_a_stem(name: str, suffixes: list[str]) -> None:
    assert stem(name + "".join(suffixes)) == stem(name)
    assert stem(stem(name)) == stem(name)
    assert stem(name)
