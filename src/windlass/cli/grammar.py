"""The one grammar, `windlass NOUN [APP] [VERB] ...`, brought into the order that the parser reads.

The app may stand before or after the verb, and is taken from WINDLASS_APP where none is named.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from windlass.loading import looks_like_an_app

FLAGS = frozenset(
    (
        *("--all", "--alive", "--help", "-h", "--json", "--payload", "--reload", "--replay"),
        *("--require-keys", "--secrets", "--trust-local"),
        *("--once", "--sql", "--status", "--stuck", "--tls", "--whole", "--yes", "-y"),
    )
)
"""Options without a value; a test holds this to the commands."""


def arranged(
    tokens: Sequence[str], verbs: Mapping[str, Collection[str]], default_app: str | None
) -> list[str]:
    """The tokens with the verb behind the noun, then the app. `verbs` of every noun that takes an app."""
    if not tokens or tokens[0] not in verbs:
        return list(tokens)
    noun, rest = tokens[0], list(tokens[1:])
    verb = _verb(rest, verbs[noun])
    path = [noun] if verb is None else [noun, rest.pop(verb)]
    if default_app and not _names_an_app(rest):
        path.append(default_app)
    return path + rest


def _verb(rest: Sequence[str], verbs: Collection[str]) -> int | None:
    """Where the verb stands: the first word, or the one behind the app; flags may stand between."""
    words = 0
    for index, token in enumerate(rest):
        if token in FLAGS:
            continue
        if token in verbs:
            return index
        words += 1
        if token.startswith("-") or words == 2:
            return None
    return None


def _names_an_app(rest: Sequence[str]) -> bool:
    """Whether the first word has the form of an app."""
    return looks_like_an_app(next(words(rest), ""))


def words(tokens: Sequence[str]) -> Iterator[str]:
    """The tokens that are neither options nor values of options."""
    skip = False
    for token in tokens:
        if skip:
            skip = False
        elif token.startswith("-") and token not in ("-", "--"):
            skip = token not in FLAGS and "=" not in token
        elif token != "--":
            yield token
