"""`python -m windlass.demo`."""

import sys

from windlass.demo import main

sys.exit(main())
