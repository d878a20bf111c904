"""Fail on a source file of more than 500 lines: it has two subjects and wants to be two files."""

import sys

from project_files import project_files, text_of

FOLDERS = {"src", "tests", "bench"}
MOST_LINES = 500


def main() -> int:
    """Print every file that is too long; return the exit code."""
    long = {}
    for path in project_files():
        if path.parts[0] in FOLDERS and (text := text_of(path)) is not None:
            lines = len(text.splitlines())
            if lines > MOST_LINES:
                long[path] = lines
    for path, lines in long.items():
        print(f"{path}: {lines} lines, at most {MOST_LINES} allowed; split it by subject", file=sys.stderr)
    return 1 if long else 0


if __name__ == "__main__":
    sys.exit(main())
