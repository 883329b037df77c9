"""`python -m speculative_operator` is the operator, as its image starts it."""

import sys

from speculative_operator.app import main

sys.exit(main())
