"""Read from the sources of vLLM's releases what the judge of pairs and the capability matrix claim of them.

`python -m realengine.facts DIR` reads `DIR/RELEASE/`, each the `vllm` folder of a release's source, and writes
`engines/data/facts.csv`: one row for each fact, with the first release that it holds in and the first later one
that was read and in which it holds no more. Read the last patch of every line, so that no line is left out.

Nothing is imported of the engine: all is told by its syntax trees.
"""

from __future__ import annotations

import argparse
import ast
import csv
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from speculative_operator import engines
from speculative_operator.engines.vllm.facts import READ
from speculative_operator.pairing.pair import Fact

PATH = Path(engines.__file__).parent / "data" / "facts.csv"
_MODELS = "model_executor/models"
_SPECULATIVE = "config/speculative.py"
_RELAY = "supports_aux_hidden_states_over_pp"
_RULES: Mapping[Fact, tuple[str, str]] = {
    Fact.SAME_VOCABULARY_SIZE: (_SPECULATIVE, "should have the same vocabulary size"),
    Fact.HETEROGENEOUS: (_SPECULATIVE, "use_heterogeneous_vocab"),
    Fact.DIVISIBLE_MODULES: (_SPECULATIVE, r"must be divisible by \{n_predict=\}"),
    Fact.DIVISIBLE_HEADS: ("config/model.py", "must be divisible by tensor parallel size"),
    Fact.CHECKS_LENGTHS: ("config/model.py", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"),
    Fact.CHECKS_QUANTIZATION: ("config/model.py", "does not match the quantization"),
    Fact.STRETCHES_POSITIONS: (_SPECULATIVE, "_maybe_override_draft_max_position_embeddings"),
    Fact.WHOLE_HEADS: (f"{_MODELS}/llama_eagle3.py", r"if self\.draft_id_to_target_id is None"),
    Fact.PARALLEL_TOKEN: ("v1/spec_decode", 'hf_config, "pard_token"'),
}
"""Rule -> file or folder, and what stands in it where the release has the rule."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("sources", type=Path, metavar="DIR")
    releases = sorted(parser.parse_args().sources.iterdir(), key=lambda place: _version(place.name))
    found = {place.name: set(facts_of(place)) for place in releases}
    with PATH.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("fact", "name", "since", "before"))
        writer.writerows(ranges(found))
    return 0


def ranges(found: Mapping[str, set[tuple[Fact, str]]]) -> Iterator[tuple[str, str, str, str]]:
    """(fact, name, since, before) of facts by release, releases in their order; `before` is empty where none ended it.

    The row READ spans all that was read.
    """
    releases = list(found)
    yield READ, "", releases[0], releases[-1]
    for fact, name in sorted(set[tuple[Fact, str]]().union(*found.values())):
        holds = [(fact, name) in found[release] for release in releases]
        for place, release in enumerate(releases):
            if holds[place] and not (place and holds[place - 1]):
                end = next((later for later in range(place, len(releases)) if not holds[later]), None)
                yield fact, name, release, "" if end is None else releases[end]


def facts_of(source: Path) -> Iterator[tuple[Fact, str]]:
    """(fact, name) of all that one release has; the name is empty for a rule of the release as a whole."""
    for fact, (place, pattern) in _RULES.items():
        if any(re.search(pattern, text) for text in _texts(source / place)):
            yield fact, ""
    speculative = (source / _SPECULATIVE).read_text()
    for part in re.findall(r'"([\w-]+)" in self\.draft_model_config\.model\.lower\(\)', speculative):
        yield Fact.RENAMED, part
    for name in _strings(speculative, "hf_config_override"):
        yield Fact.MODULES, name
    for text in _texts(source / "transformers_utils/configs/speculators"):
        yield from ((Fact.FORMAT, name) for name in re.findall(r'register_speculator\("(\w+)"\)', text))
    yield from _of_models(_Classes(source))


def _of_models(classes: _Classes) -> Iterator[tuple[Fact, str]]:
    relays = classes.relays()
    for architecture, (module, name) in classes.registry().items():
        if not classes.gives_inner_states(module, name):
            yield Fact.NO_INNER_STATES, architecture
        elif relays and (relaying := classes.relaying(module, name)) is not None:
            yield Fact.RELAY if relaying else Fact.NO_RELAY, architecture


class _Classes:
    """Classes of one release's models, by the module that defines or imports them."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._trees: dict[str, ast.Module | None] = {}

    def registry(self) -> dict[str, tuple[str, str]]:
        """Architecture -> (module, class), of models of text."""
        for node in ast.walk(self._tree(f"vllm.{_MODELS}.registry".replace("/", ".")) or ast.Module([], [])):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_TEXT_GENERATION_MODELS":
                found: dict[str, tuple[str, str]] = ast.literal_eval(node.value)
                return {key: (self._full(module), name) for key, (module, name) in found.items()}
        return {}

    def relays(self) -> bool:
        """True where the V2 runner asks whether a model passes hidden states between stages of a pipeline."""
        return any(f"verify_{_RELAY}" in text for text in _texts(self._source / "v1" / "worker" / "gpu"))

    def gives_inner_states(self, module: str, name: str) -> bool:
        """True for a class that says so, or one whose module speaks of such states, or that cannot be followed."""
        line = list(self._line(module, name))
        if not line:
            return True
        speaks = any("aux_hidden_state" in ast.unparse(node) for _, node in line)
        return speaks or any(ast.unparse(base).endswith("SupportsEagle3") for _, node in line for base in node.bases)

    def relaying(self, module: str, name: str) -> bool | None:
        """Whether the decoder inside a class passes these states to the next stage; None where it cannot be told."""
        for where, node in self._line(module, name):
            made = {ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
            for inner in sorted(one for one in made if re.fullmatch(r"[A-Z]\w*Model", one)):
                line = list(self._line(where, inner))
                told = [value for _, found in line if (value := _flag(found)) is not None]
                if line:
                    return told[0] if told else False
        return None

    def _line(self, module: str, name: str, depth: int = 0) -> Iterator[tuple[str, ast.ClassDef]]:
        """(module, class) of a class and those that it inherits from, as far as they are models of the release."""
        tree = self._tree(module)
        for node in tree.body if tree is not None and depth < 8 else ():
            if isinstance(node, ast.ClassDef) and node.name == name:
                yield module, node
                for base in node.bases:
                    yield from self._line(module, ast.unparse(base), depth + 1)
            elif isinstance(node, ast.ImportFrom):
                origin = _absolute(node, module)
                for alias in node.names:
                    if (alias.asname or alias.name) == name and "models" in origin:
                        yield from self._line(origin, alias.name, depth + 1)

    def _full(self, module: str) -> str:
        return module if "." in module else f"vllm.{_MODELS.replace('/', '.')}.{module}"

    def _tree(self, module: str) -> ast.Module | None:
        if module not in self._trees:
            path = self._source.joinpath(*module.split(".")[1:])
            files = (path.with_suffix(".py"), path / "__init__.py", path / "nvidia" / "model.py")
            file = next((one for one in files if one.exists()), None)
            self._trees[module] = ast.parse(file.read_text()) if file is not None else None
        return self._trees[module]


def _flag(node: ast.ClassDef) -> bool | None:
    for one in node.body:
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == _RELAY:
            return bool(ast.literal_eval(one.value))
    return None


def _absolute(node: ast.ImportFrom, module: str) -> str:
    if not node.level:
        return node.module or ""
    return ".".join([*module.split(".")[: -node.level], *(node.module or "").split(".")]).strip(".")


def _strings(text: str, function: str) -> set[str]:
    """Texts that a function compares something with: types and architectures of models."""
    own = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef) and one.name == function]
    compared = (one for node in own for one in ast.walk(node) if isinstance(one, ast.Compare))
    models = (one for one in compared if not (isinstance(one.left, ast.Constant) and _is_key(one)))
    parts = (part for one in models for part in ast.walk(one) if isinstance(part, ast.Constant))
    return {part.value for part in parts if isinstance(part.value, str)}


def _is_key(one: ast.Compare) -> bool:
    """True for `"text" in config`: the text is a key, no model's."""
    return not any(part in ast.unparse(one.comparators[0]) for part in ("model_type", "architectures"))


def _texts(place: Path) -> list[str]:
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.exists() else []
    return [file.read_text() for file in files]


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


if __name__ == "__main__":
    sys.exit(main())
