"""docs/settings.md, made from the fields of `Settings`: `python -m speculative_operator.settings_page`."""

from __future__ import annotations

import sys

from speculative_operator.settings import PREFIX, Settings


def reference() -> str:
    """The whole of docs/settings.md."""
    lines = [
        "# Settings of the operator",
        "",
        "Read once at start from the environment. Generated from `settings.py` by",
        "`python -m speculative_operator.settings_page > docs/settings.md`.",
        "",
        "| Variable | Default | What, unit and why |",
        "| --- | --- | --- |",
    ]
    for name, field in Settings.model_fields.items():
        default = field.default
        shown = str(default).lower() if isinstance(default, bool) else str("" if default is None else default)
        lines.append(f"| `{PREFIX}{name.upper()}` | {f'`{shown}`' if shown else 'empty'} | {field.description} |")
    lines += [
        "",
        "`POD_NAME` (from the downward API) is the operator's identity in the Lease: a container that is restarted in",
        "the same pod goes on at once instead of waiting for its own Lease to run out.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(reference())
