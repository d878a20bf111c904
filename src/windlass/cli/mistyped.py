"""Error messages for what the parser refuses, with a hint to the right command."""

from cyclopts import CycloptsError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError

from windlass.cli.grammar import words
from windlass.core.ids import is_job_id
from windlass.core.spelling import closest
from windlass.loading import looks_like_an_app

_OTHER_WORDS = {
    "dashboard": "serve",
    "help": "--help",
    "list": "jobs",
    "run": "worker",
    "start": "worker",
    "status": "top",
    "tasks": "control",
    "ui": "serve",
    "version": "--version",
    "web": "serve",
}
"""Commands of other tools, and their names here."""


def mistyped(error: CycloptsError) -> str:
    """Return what is wrong, and where the help of the command is."""
    command = " ".join(("windlass", *(error.command_chain or ())))
    match error:
        case MissingArgumentError() if _lacks_its_app(error):
            more = "" if error.argument is None or error.argument.name == "APP" else " ..."
            return f"name the app: {command} module:app{more}, or set WINDLASS_APP"
        case UnusedCliTokensError(unused_tokens=[token, *_]):
            said = _unexpected(error, token, command)
        case UnknownCommandError(unused_tokens=[token, *_]) if token in _OTHER_WORDS:
            said = f'Unknown command "{token}". Did you mean "{_OTHER_WORDS[token]}"?'
        case _:
            said = str(error).partition(" Available commands:")[0].rstrip(".")
    return f"{said}; see {command} --help"


def _lacks_its_app(error: CycloptsError) -> bool:
    """Return whether a command has too few words because the app is missing."""
    arguments = () if error.app is None else error.app.assemble_argument_collection()
    takes_one = any(argument.name == "APP" for argument in arguments)
    return takes_one and not any(map(looks_like_an_app, _typed(error)))


def _unexpected(error: CycloptsError, token: str, command: str) -> str:
    """Return the message for an unexpected word. Most often it is a misspelled verb."""
    verbs = [] if error.app is None else [name for name in error.app.resolved_commands() if name[0] != "-"]
    word = next((word for word in _typed(error) if not looks_like_an_app(word)), token)
    if verbs and (near := closest(word, verbs)) is not None:
        return f'"{word}" is not a verb of {command}; did you mean "{near}"?'
    said = f'"{token}" is not expected here'
    if "show" in verbs and is_job_id(token):
        return f"{said}; to see that job: {command} APP show {token}"
    return f"{said}; verbs of {command}: {', '.join(verbs)}" if verbs else said


def _typed(error: CycloptsError) -> list[str]:
    """Return the words after the command."""
    return list(words((error.root_input_tokens or [])[len(error.command_chain or ()) :]))
