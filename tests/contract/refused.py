"""Every refused object, for tests/contract/test_spec_constraints.py and tests/unit/api."""

from __future__ import annotations

from tests.contract.objects import Bad
from tests.contract.refused_auto import AUTO
from tests.contract.refused_pair import PAIR
from tests.contract.refused_rest import REST
from tests.contract.refused_speculation import SPECULATION

BAD: tuple[Bad, ...] = (*PAIR, *AUTO, *SPECULATION, *REST)
