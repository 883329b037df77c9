"""Which of the user's `engine.args` collide with what the operator sets or relies on, read with the engine's grammar.

Used by every adapter's checks. One owner per flag: a flag with a field of its own is refused even while that field is
empty, because the operator reasons with the field's value (batch limits, memory, metrics) and would not see the flag's.
`data/arguments.csv` classes the other flags: `pod` (it voids what probes, metrics or the pod's resources rely on),
`tls` (likewise, unless the user's template has probes follow it),
`blinding` (it takes away or doubles metrics), `removed` (the release does not know it and ends at its start), `alias`
(`says` is the long form) and `passed`. vLLM's rows are its parser's, of release `since`; tests/vllm compares them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from speculative_operator.domain.reading import at, mappings
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Mode
from speculative_operator.engines.base import Refusal
from speculative_operator.engines.matrix.rows import Version, parse_version, rows_of, show_version

FIELD = "spec.engine.args"
ALWAYS = "the operator always sets it"
SPECULATION = "set spec.speculator and spec.speculation instead"
_DIGITS = "0123456789"
_FLAG = re.compile(r"--?[A-Za-z]")
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
_VALUES = {"0": (0, 0), "1": (1, 1), "?": (0, 1), "+": (1, math.inf)}
"""Fewest and most values of a flag, by argparse's word for it."""


def of_verifier(fields: Mapping[str, str]) -> dict[str, str]:
    """Flag -> remedy, of flag -> field of spec.verifier that sets it."""
    return {flag: f"set spec.verifier.{name} instead" for flag, name in fields.items()}


@dataclass(frozen=True)
class Flags:
    """How one engine spells its flags, and what the operator makes of each."""

    engine: EngineType
    owned: Mapping[str, str]
    """Flag in its long form -> remedy."""
    more_aliases: Mapping[str, str] = field(default_factory=dict)
    flexible: bool = False
    """True for vLLM's parser, which also takes `--max_num_seqs`, `--speculative-config.method` and `-tp2`."""

    @cached_property
    def rows(self) -> Mapping[str, Mapping[str, str]]:
        """Rows of the table by flag."""
        return {row["flag"]: row for row in rows_of("arguments") if row["engine"] == self.engine}

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """Other spellings of a flag -> its long form."""
        listed = {flag: row["says"] for flag, row in self.rows.items() if row["kind"] == "alias"}
        return {**listed, **self.more_aliases}

    @cached_property
    def _spellings(self) -> frozenset[str]:
        """All spellings that the engine's parser has."""
        current = (flag for flag, row in self.rows.items() if row["kind"] != "removed")
        return frozenset((*self.owned, *self.aliases, *current))

    def name(self, argument: str) -> str:
        """The flag that `argument` names, by an unambiguous beginning too, in its long form; "" for a value."""
        if not _FLAG.match(argument) and argument != "--":
            return ""
        flag = argument.split(maxsplit=1)[0].partition("=")[0]
        if self.flexible:
            flag = self._plain(flag)
        if flag in self._spellings or flag in self.rows:
            return self.aliases.get(flag, flag)
        # As argparse does: of flags with one dash, the first letter may be one that takes a value.
        short = "" if flag.startswith("--") else flag[:2]
        meant = {self.aliases.get(one, one) for one in self._spellings if one.startswith(flag) or one == short}
        return meant.pop() if len(meant) == 1 else flag

    def _plain(self, flag: str) -> str:
        if flag.startswith("--"):
            return flag.partition(".")[0].replace("_", "-")
        bare = flag.rstrip(_DIGITS)
        return bare if bare in self.aliases else flag

    def _flags_with_values(self, args: tuple[str, ...]) -> list[tuple[str, str, list[str]]]:
        """Each flag as it is written, in its long form, and its values: `--flag=value`, and all that stands between it
        and the next flag."""
        values: list[str] = []
        found = []
        for argument in args:
            if not (flag := self.name(argument)):
                values.append(argument)
                continue
            _, equals, value = argument.partition("=")
            values = [value] if equals else []
            found.append((argument, flag, values))
        return found

    def values_by_flag(self, args: tuple[str, ...]) -> dict[str, list[str]]:
        """Flag -> its values as written, in order."""
        found: dict[str, list[str]] = {}
        for _, flag, values in self._flags_with_values(args):
            found.setdefault(flag, []).extend(values)
        return found

    def refusals(self, spec: DeploymentSpec) -> Iterator[Refusal]:
        """What is wrong with the arguments of `spec`, in the order given; two where an item is wrong in itself."""
        arguments, version = spec.engine.args, parse_version(spec.engine.version) or (0, 0, 0)
        if arguments and not self.name(arguments[0]):
            message = f"{FIELD} begins with {arguments[0]!r}, which is not a flag; set the model in spec.verifier.model"
            yield Refusal(FIELD, Reason.SPEC_INVALID, message)
        for argument, flag, values in self._flags_with_values(arguments):
            found = [_in_one_item(argument), self._collision(argument, flag, spec, version)]
            for wrong in found if any(found) else [self._misfit(argument, flag, values, version)]:
                if wrong:
                    yield Refusal(FIELD, Reason.SPEC_INVALID, f"{FIELD} {wrong}")

    def _collision(self, argument: str, flag: str, spec: DeploymentSpec, version: Version) -> str:
        """Why the operator does not pass a flag on; empty where it does."""
        row = self.rows.get(flag, {})
        kind, says = row.get("kind"), row.get("says", "")
        if flag in self.owned:
            return f"repeats {flag} ({argument!r}): {self.owned[flag]}; remove it from engine.args"
        if kind == "removed" and version >= (parse_version(row["since"]) or (0, 0, 0)):
            return f"has {argument!r}, which {self.engine} {show_version(version)} does not know: {says}"
        if kind == "pod" or (kind == "tls" and not _asks_by_tls(spec)):
            return f"has {argument!r}, which {says}"
        mode = spec.speculation.mode
        if kind == "blinding" and mode in (Mode.AUTO, Mode.RECOMMEND):
            return f"has {flag}, which {says} that mode {mode} reads; remove it, or set spec.speculation.mode: Static"
        return ""

    def _misfit(self, argument: str, flag: str, values: list[str], version: Version) -> str:
        """What is wrong with the number of values of a flag, where the table knows how many the release takes."""
        row, name = self.rows.get(flag, {}), argument.partition("=")[0]
        read = parse_version(row.get("since", ""))
        if not row.get("values") or read is None or read[:2] != version[:2] or (self.flexible and "." in name):
            return ""
        least, most = _VALUES[row["values"]]
        if len(values) > most:
            taken = "one value" if most else "no value"
            return f"has {values[int(most)]!r} after {name}, which takes {taken}: remove it"
        return f"has {name} without a value: write it as the next item" if len(values) < least else ""


def _asks_by_tls(spec: DeploymentSpec) -> bool:
    """True where the user's template has a probe ask the engine by HTTPS."""
    containers = mappings(spec.template, "spec", "containers")
    return any(at(one, probe, "httpGet", "scheme") == "HTTPS" for one in containers for probe in _PROBES)


def _in_one_item(argument: str) -> str:
    """What is wrong with a flag that shares its item with a blank; a value of its own may hold some."""
    flag, blank, rest = re.match(r"([^\s=]*)(\s*)(.*)", argument, re.DOTALL).groups()  # type: ignore[union-attr]
    if not blank:
        return ""
    remedy = f"write two items or {flag}={rest.strip()}" if rest.strip() else f"write {flag} without the blank"
    return f'has "{argument}" in one item; {remedy}'
