"""`manage.py windlass worker`, `manage.py windlass jobs` …: the command line, with the project's app."""
# pyright: basic, reportMissingTypeStubs=false

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError

from windlass.cli import main
from windlass.cli.grammar import APP_VARIABLE

APP = "windlass.django:app"


class Command(BaseCommand):
    """Everything behind `windlass` is the command line's own: its options, its help, its exit code."""

    help = "Run a command of Windlass with the app of this project: worker, serve, jobs, dead, queues …"

    def run_from_argv(self, argv: Sequence[str]) -> NoReturn:
        """Hand all of it over. Django's own options would be taken out of it otherwise."""
        sys.exit(_run(argv[2:]))

    def add_arguments(self, parser: Any) -> None:
        """For `call_command`."""
        parser.add_argument("arguments", nargs="*")

    def handle(self, *_args: Any, **options: Any) -> None:
        """For `call_command("windlass", "queues")`."""
        if code := _run(options["arguments"]):
            raise CommandError(f"windlass ended with exit code {code}", returncode=code)


def _run(tokens: Sequence[str]) -> int:
    os.environ.setdefault(APP_VARIABLE, APP)
    return main(list(tokens) or ["--help"])
