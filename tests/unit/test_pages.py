"""What a stranger follows: links and anchors lead somewhere, and whatever a page names is there under that name.

Figures and prose nobody can hold; names can be held. Pages made from the code have tests of their own (`api/`,
`engines/test_documentation.py`, `shell/test_telemetry.py`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from devcluster.options import ClusterOptions
from speculative_operator.api.convert import SpecError, to_domain
from speculative_operator.api.crd import schema, training_schema
from speculative_operator.cli import parsers as cli
from speculative_operator.domain import names
from speculative_operator.domain.reasons import Reason
from speculative_operator.pairing.findings import Code
from speculative_operator.pairing.verdict import Kind
from speculative_operator.reconcile.report.events import events
from speculative_operator.reconcile.snapshot.status import Status
from speculative_operator.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "speculative-operator" / "README.md"
CLUSTER = ROOT / "docs" / "development.md"
FIRST = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", CHART]
PAGES = sorted([*FIRST, *(ROOT / "docs").rglob("*.md")])
SOURCES = ("examples", "operator", "lab", "dev", "charts", "tests")
KINDS = {".py", ".yaml", ".j2", ".tpl", ".csv", ".toml", ".svg"}

HEADING = re.compile(r"#{1,6} (.+)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
TWO_HUMPS = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z0-9]*)+")
VARIABLE = re.compile(r"\b(?:SPECULATIVE|EMULATOR|DEVCLUSTER|REALENGINE)_[A-Z][A-Z0-9_]*\b")
OF_THE_TREE = re.compile(r"(?:operator|lab|dev|tests|docs|charts|examples|manifests|crds)/[\w./-]*\w")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


TODAY = [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "decisions"]
"""All but those that tell what was so when they were written."""


def offenders(find: Callable[[Path], Iterable[object]], pages: Iterable[Path] = PAGES) -> list[str]:
    """What is wrong on each page, as `page: what`."""
    return [f"{name(page)}: {what}" for page in pages for what in find(page)]


@cache
def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def prose(page: Path) -> tuple[tuple[int, str], ...]:
    """Numbered lines outside of fenced blocks."""
    lines, fenced = [], False
    for number, line in enumerate(text(page).splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            lines.append((number, line))
    return tuple(lines)


@cache
def sources() -> str:
    """Everything that is no page, in one text."""
    files = [path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in KINDS]
    found = [path.read_text(encoding="utf-8") for path in files if path != Path(__file__)]
    return "\n".join([*found, (ROOT / "Makefile").read_text(), (ROOT / "Dockerfile").read_text()])


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    found: dict[str, int] = {}
    for _, line in prose(page):
        if heading := HEADING.fullmatch(line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").strip().lower()
            anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            found[anchor] = found.get(anchor, -1) + 1
    return {f"{anchor}-{n}" if n else anchor for anchor, most in found.items() for n in range(most + 1)}


def links(page: Path) -> Iterator[tuple[int, str]]:
    """Line and target of each link to another place of the tree."""
    for number, line in prose(page):
        for target in LINK.findall(QUOTED.sub("", line)):
            if not re.match(r"[a-z]+:", target):
                yield number, target


def leads(page: Path, target: str) -> tuple[Path, str]:
    path, _, anchor = target.partition("#")
    return (page.parent / path).resolve() if path else page, anchor


def lost_links(page: Path) -> Iterator[str]:
    for number, target in links(page):
        path, anchor = leads(page, target)
        if not path.exists() or (anchor and anchor not in anchors(path)):
            yield f"line {number}: {target}"


def test_links_lead_somewhere() -> None:
    assert offenders(lost_links) == []


def test_every_page_is_found_from_the_first() -> None:
    """By links alone; a link to a folder leads to all that lies in it."""
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            for _, target in links(page):
                path, _ = leads(page, target)
                waiting += path.glob("*.md") if path.is_dir() else [path] if path.suffix == ".md" else []
    assert set(PAGES) - seen == set()


def quoted(page: Path) -> set[str]:
    """What stands between backticks."""
    return set(QUOTED.findall(text(page)))


def test_files_that_are_named_exist() -> None:
    def lacking(page: Path) -> set[str]:
        return {word for word in quoted(page) if OF_THE_TREE.fullmatch(word) and not (ROOT / word).exists()}

    assert offenders(lacking) == []


@cache
def words() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", sources()))


def test_words_of_the_vocabulary_are_those_of_the_code() -> None:
    """Reasons, conditions, codes, kinds: CamelCase of two humps and more."""
    assert offenders(lambda page: {word for word in quoted(page) if TWO_HUMPS.fullmatch(word)} - words()) == []


def test_variables_that_are_named_are_read() -> None:
    settings = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    assert offenders(lambda page: set(VARIABLE.findall(text(page))) - settings - words()) == []


def test_variables_that_are_read_are_named() -> None:
    """Those of programs that users start; the harness of the real engine has some of its own."""
    package = "\n".join(path.read_text() for root in ("operator", "lab") for path in (ROOT / root).rglob("*.py"))
    told = set(VARIABLE.findall("\n".join(map(text, PAGES))))
    assert set(re.findall(r"\"((?:SPECULATIVE|EMULATOR)_[A-Z_]+[A-Z])\b", package)) - told == set()


def test_annotations_and_labels_are_those_of_the_code() -> None:
    known = {value.rstrip(".") for value in vars(names).values() if isinstance(value, str)} | {names.API_VERSION}
    own = re.compile(rf"{re.escape(names.GROUP)}/[a-z0-9-]+")
    assert offenders(lambda page: set(own.findall(text(page))) - known) == []


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    def lacking(page: Path) -> set[str]:
        blocks = "\n".join(block for _, block in FENCE.findall(text(page)))
        called = re.findall(r"^make ([a-z0-9-]+)", blocks, re.MULTILINE)
        return {*re.findall(r"`make ([a-z0-9-]+)", text(page)), *called} - targets

    assert offenders(lacking) == []


def test_flags_that_are_named_are_taken_by_something() -> None:
    """Alone or with a program of ours; other programs' commands are theirs."""
    foreign = {"--timestamps"}  # of kubectl, which the process node does not have

    def unknown(page: Path) -> set[str]:
        ours = [word for word in quoted(page) if word.startswith(("--", "speculative"))]
        named = {flag for word in ours for flag in re.findall(r"(?<!\S)--[a-z][a-z0-9-]+", word)}
        return {flag for flag in named - foreign if flag not in sources()}

    assert offenders(unknown) == []


# -- commands


def commands(page: Path) -> Iterator[str]:
    """Calls of `speculative` in fenced blocks, without comments, redirections and what follows a pipe."""
    for _, block in FENCE.findall(text(page)):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.split(r"\s(?:#|[|<>])\s", f"{line} ")[0].removeprefix("$ ").strip()
            if command.startswith("speculative "):
                yield command


def test_commands_are_taken() -> None:
    calls = sorted({command for page in PAGES for command in commands(page)})
    assert len(calls) > 10
    refused = []
    for call in calls:
        words = shlex.split(call)[1:]
        try:
            cli.parser(words[0], cli.command(words[0])).parse_args(words)
        except SystemExit:
            refused.append(call)
    assert refused == []


# -- objects

WHOLE: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": names.KIND,
    "metadata": {"name": "page", "namespace": "default"},
    "spec": {"verifier": {"model": "hf://organisation/model"}},
}


WHOLE_SCHEMA = schema()


def objects(page: Path) -> Iterator[dict[str, Any]]:
    """Objects of ours in YAML blocks, pieces of a spec put into a whole one."""
    for language, block in FENCE.findall(text(page)):
        for found in yaml.safe_load_all(block) if language == "yaml" else ():
            if isinstance(found, dict) and "spec" in found and found.get("kind", names.KIND) == names.KIND:
                yield (
                    WHOLE
                    | found
                    | {"metadata": WHOLE["metadata"] | found.get("metadata", {})}
                    | {"spec": WHOLE["spec"] | found["spec"]}
                )


SHOWN = [(f"{page.name}-{n}", found) for page in PAGES for n, found in enumerate(objects(page))]
SHOWN += [(path.name, yaml.safe_load(path.read_text())) for path in sorted((ROOT / "examples").glob("*.yaml"))]


def test_objects_are_valid() -> None:
    assert len(SHOWN) > 10
    refused = {}
    for where, shown in SHOWN:
        try:
            to_domain(shown)
        except SpecError as problem:
            refused[where] = str(problem)
    assert refused == {}


# -- warnings


def test_warnings_are_all_listed_with_their_type() -> None:
    """Of the status; what events say of them is told beside."""
    package = "\n".join(path.read_text() for path in (ROOT / "operator").rglob("*.py"))
    given = {Reason[name] for name in re.findall(r"(?:Notice\(\s*|knobs\.\w+, )Reason\.(\w+)", package)}
    _, _, section = text(ROOT / "docs" / "reasons.md").partition("## Warnings")
    lists = re.findall(r"^- (Normal|Warning): ([^.]*)\.", section, re.MULTILINE)
    rows = [(name, kind) for kind, names in lists for name in re.findall(r"`(\w+)`", names)]
    status = Status(warnings=tuple((reason.value, "x") for reason in given))
    told = {event.reason: event.type for event in events(Status(), status, ())}
    assert {Reason(name): kind for name, kind in rows} == told


def first_column(page: str, section: str) -> list[str]:
    """Words of the first column of the tables of a section, in their order."""
    _, _, rest = text(ROOT / "docs" / page).partition(f"\n## {section}\n")
    return re.findall(r"^\| `(\w+)`", re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0], re.MULTILINE)


def test_codes_of_findings_are_all_listed() -> None:
    assert sorted(first_column("pairs.md", "Codes")) == sorted(Code)


def test_kinds_of_pairs_are_all_listed() -> None:
    assert sorted(first_column("pairs.md", "Kinds")) == sorted(Kind)


def test_commands_are_all_described() -> None:
    for command in cli.COMMANDS:
        assert f"\n## speculative {command}\n" in text(ROOT / "docs" / "cli.md")


def test_options_of_the_development_cluster_are_all_shown() -> None:
    blocks = [yaml.safe_load(block) for kind, block in FENCE.findall(text(CLUSTER)) if kind == "yaml"]
    (shown,) = (block for block in blocks if "scrape_interval_seconds" in block)
    shown["images"] = {}  # examples, of which there are none by default
    assert shown == vars(ClusterOptions())


# -- fields

FIELD = re.compile(r"(?:[a-z][A-Za-z0-9]*\.)+[a-z][A-Za-z0-9]*(?=$|[: ])")
FILES = (".yaml", ".json", ".md", ".py", ".csv")


def is_field(path: str) -> bool:
    """Of `spec` or `status`, or of the whole object; what has no schema of its own is not looked into."""
    wholes = (WHOLE_SCHEMA, training_schema())
    nodes = [*wholes, *(whole["properties"][top] for whole in wholes for top in ("spec", "status"))]
    return any(_holds(node, path.split(".")) for node in nodes)


def _holds(node: dict[str, Any], parts: list[str]) -> bool:
    node = node.get("items", node)
    if not parts or node.get("x-kubernetes-preserve-unknown-fields"):
        return True
    inner = node.get("properties", {}).get(parts[0])
    return inner is not None and _holds(inner, parts[1:])


def test_fields_that_are_named_exist() -> None:
    tops = {*WHOLE_SCHEMA["properties"], *WHOLE_SCHEMA["properties"]["spec"]["properties"]}

    def lacking(page: Path) -> set[str]:
        named = {found[0] for word in quoted(page) if (found := FIELD.match(word))}
        ours = {path for path in named if path.split(".")[0] in tops and not path.endswith(FILES)}
        return {path for path in ours if not is_field(path)}

    assert offenders(lacking, TODAY) == []
