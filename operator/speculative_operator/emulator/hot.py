"""`--scheduler-cls`: imports the named module as vLLM would and takes its table file. Called by `server` after loading.

vLLM resolves the name from PYTHONPATH and dies when it cannot; so does this. The payload's `TableFile` runs here
unchanged, so that what reads the table in the emulator is what reads it in a real pod.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping

from speculative_operator.emulator.driver import TableSource
from speculative_operator.emulator.errors import LateError

log = logging.getLogger(__name__)


def table_source(name: str | None, lookup: list[int] | None, environment: Mapping[str, str]) -> TableSource | None:
    """The table file of the scheduler called `name`; None without one, or where the payload would stay inert.

    `lookup` is the boot schedule, whose K alone may occur in the file. Raises LateError for a name that does not
    import.
    """
    if not name:
        return None
    module_name, _, attribute = name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
        getattr(module, attribute)
    except Exception as error:  # importing runs foreign code: whatever it raises ends the start
        raise LateError(f"--scheduler-cls {name}: {type(error).__name__}: {error}") from error
    log.warning(
        "Using custom scheduler class %s. This scheduler interface is not public and compatibility may not be"
        " maintained.",
        name,
    )
    table_file = getattr(module, "TableFile", None)
    if table_file is None:
        log.warning("%s has no TableFile: the stock scheduler runs in its place", module_name)
        return None
    path = environment.get(getattr(module, "TABLE_VARIABLE", "SPECULATIVE_TABLE_FILE"))
    if lookup is None or not path:
        why = "the engine runs without a schedule" if lookup is None else "the variable of the table file is not set"
        log.warning("speculative: K is not changed while serving: %s", why)
        return None
    source: TableSource = table_file(path, frozenset(lookup[1:]), len(lookup) - 1)
    return source
