"""Windlass and its peers, side by side: `make bench`, or `python bench/run.py --help`."""

import sys

from sidebyside.program import main

if __name__ == "__main__":
    sys.exit(main())
