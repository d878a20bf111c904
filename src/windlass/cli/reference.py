"""The reference of the command line, generated from the commands: `python -m windlass.cli.reference`."""

import inspect
import sys
from collections.abc import Iterator, Mapping

from cyclopts import App, Argument

from windlass.cli.program import build

_INTRODUCTION = """\
<!-- Made by `python -m windlass.cli.reference > docs/cli.md`; a test holds it to the commands. -->
# The command line

Every command is `windlass NOUN [APP] [VERB] ...`. Without a verb it prints a list. `APP` is `module:app`; the
module is imported with the current folder on the path. If you leave `APP` out, `WINDLASS_APP` names it. Each
command and verb has a `--help`.

Answers go to standard output: tables on a terminal, aligned text in a pipe. With `--json` each line is one
JSON object, with times as UTC text and durations in seconds. Everything else goes to standard error. An error
message is one line there.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | it failed: the store did not answer, no such job, or `doctor` found a problem |
| 2 | the command line, the app or a setting is wrong; the message says how to correct it |
| 130 | interrupted |

`WINDLASS_DEBUG=1` adds the traceback of an error. `windlass --install-completion` completes commands and
options in bash, zsh and fish.
"""


def reference() -> str:
    """Return the text of docs/cli.md."""
    return "\n".join(_page(build()))


def _page(program: App) -> Iterator[str]:
    yield _INTRODUCTION
    for name, noun in _commands(program).items():
        yield f"## {name}\n"
        verbs = _commands(noun)
        yield from _command(noun, with_options=not verbs)
        for verb, command in verbs.items():
            yield f"### {name} {verb}\n"
            yield from _command(command, with_options=True)


def _commands(parent: App) -> Mapping[str, App]:
    return {name: app for name, app in parent.resolved_commands().items() if not name.startswith("-")}


def _command(command: App, *, with_options: bool) -> Iterator[str]:
    # Before Python 3.13 a docstring keeps the indentation of its later lines.
    yield f"{inspect.cleandoc(command.help or '')}\n"
    usage = (command.usage or "").removeprefix("Usage: ").replace("\n       ", "\n")
    examples = (command.help_epilogue or "").removeprefix("Examples:\n").replace("\n  ", "\n").strip()
    yield f"```console\n{usage}\n```\n"
    if with_options:
        yield from _options(command)
    yield f"```console\n{_prompted(examples)}\n```\n"


def _prompted(examples: str) -> str:
    return "\n".join(f"$ {line}" for line in examples.splitlines())


def _options(command: App) -> Iterator[str]:
    # "*" stands for options that several commands share; each of them is an argument, too.
    arguments = command.assemble_argument_collection()
    rows = [_row(argument) for argument in arguments if argument.names != ("*",)]
    if rows:
        yield "\n".join(("| | |", "|---|---|", *rows, ""))


def _row(argument: Argument) -> str:
    choices = argument.get_choices()
    said = [argument.parameter.help or ""]
    if choices:
        said.append(f"One of: {', '.join(choices)}.")
    default = argument.field_info.default
    if argument.parameter.show_default and isinstance(default, int):
        said.append(f"Default: {default}.")
    names = ", ".join(f"`{name}`" for name in argument.names)
    return f"| {names} | {' '.join(said).replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
