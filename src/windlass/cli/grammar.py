"""The grammar of all commands, `windlass NOUN [APP] [VERB] ...`, put into the order that the parser reads.

The app may stand before or after the verb. If no app is named, it is taken from WINDLASS_APP.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from windlass.loading import looks_like_an_app

APP_VARIABLE = "WINDLASS_APP"
FLAGS = frozenset(
    (
        *(
            "--all",
            "--alive",
            "--dry-run",
            "--help",
            "-h",
            "--exit-if-store-is-down",
            "--json",
            "--no-intakes",
            "--payload",
            "--reload",
            "--replay",
        ),
        *("--require-keys", "--secrets", "--trust-local"),
        *("--quiet", "-q", "--verbose", "-v"),
        *("--once", "--sql", "--status", "--stuck", "--tls", "--whole", "--yes", "-y"),
    )
)
"""Options without a value; a test compares this with the commands."""


def arranged(
    tokens: Sequence[str], verbs: Mapping[str, Collection[str]], default_app: str | None
) -> list[str]:
    """Return the tokens in the order noun, verb, app. `verbs`: the verbs of every noun that takes an app."""
    if not tokens or tokens[0] not in verbs:
        return list(tokens)
    noun, rest = tokens[0], list(tokens[1:])
    verb = _verb(rest, verbs[noun])
    path = [noun] if verb is None else [noun, rest.pop(verb)]
    if default_app and not _names_an_app(rest):
        path.append(default_app)
    return path + rest


def _verb(rest: Sequence[str], verbs: Collection[str]) -> int | None:
    """Return the position of the verb: the first word, or the one after the app and its options."""
    words = 0
    for index, token in enumerate(rest):
        if _is_flag(token):
            continue
        if token in verbs:
            return index
        words += 1
        if token.startswith("-") or words == 2:
            return None
    return None


def _names_an_app(rest: Sequence[str]) -> bool:
    """Return whether the first word has the form of an app."""
    return looks_like_an_app(next(words(rest), ""))


def words(tokens: Sequence[str]) -> Iterator[str]:
    """Return the tokens that are neither options nor values of options."""
    skip = False
    for token in tokens:
        if skip:
            skip = False
        elif token.startswith("-") and token not in ("-", "--"):
            skip = not _is_flag(token) and "=" not in token
        elif token != "--":
            yield token


def _is_flag(token: str) -> bool:
    """Whether no value follows it; -vv is -v -v."""
    return token in FLAGS or (token[:2] in FLAGS and len(set(token[1:])) == 1 and token[1:2] != "-")
