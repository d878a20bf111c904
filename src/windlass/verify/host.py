"""A host of workers: `python -m windlass.verify.host ...` is `windlass worker ...` that ends with the run."""

import sys

from windlass.cli import main
from windlass.verify.processes import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    sys.exit(main(["worker", *sys.argv[1:]]))
