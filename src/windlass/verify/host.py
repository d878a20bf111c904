"""A command that ends with the run: `python -m windlass.verify.host worker ...` is `windlass worker ...`."""

import sys

from windlass.cli import main
from windlass.verify.processes import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    sys.exit(main(sys.argv[1:]))
