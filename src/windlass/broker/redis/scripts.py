"""The scripts: one per verb, in `lua/`. A line `-- include: a, b` brings in what several of them share, and
`-- otherwise: c` the long way that a short one may take. `-- when needed: d` makes a function `d` of a piece
that many calls can do without.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import NamedTuple

_INCLUDE = re.compile(r"^-- include: (.+)$", re.MULTILINE)
_OTHERWISE = re.compile(r"^-- otherwise: (.+)$", re.MULTILINE)
_WHEN_NEEDED = re.compile(r"^-- when needed: (.+)$", re.MULTILINE)
_NAMES = re.compile(r"^local (?:function (\w+)|([\w, ]+?)(?: =|$))", re.MULTILINE)
_FLAT = 150
_COMMENT = re.compile(r"^\s*--.*$|\s+-- .*$", re.MULTILINE)


class Script(NamedTuple):
    """A script as the server gets it."""

    name: str
    text: bytes
    sha: bytes


def _source(name: str) -> str:
    return resources.files("windlass.broker.redis").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def _gather(name: str, found: dict[str, str], instead: Mapping[str, str]) -> None:
    if name in found:
        return
    text = instead.get(name) or _source(name)
    for line in _INCLUDE.findall(text):
        for other in line.split(","):
            _gather(other.strip(), found, instead)
    found[name] = text


def assemble(name: str, *, instead: Mapping[str, str] = MappingProxyType({})) -> str:
    """A script with all that it includes. Tests put other text in the place of a piece.

    Lua knows at most 200 local names in a function. So each piece of a large script becomes a function of its
    own, and only what others mention of it is a name outside. A small one is the pieces as they are: the
    server makes a script's functions, and a box for each name that they use, at every call.
    """
    found: dict[str, str] = {}
    _gather(name, found, instead)
    texts = {piece: _COMMENT.sub("", text) for piece, text in found.items()}
    names = sum(
        len((one or many).split(",")) for text in texts.values() for one, many in _NAMES.findall(text)
    )
    whole = [*texts.values()] if names <= _FLAT else _enclosed(name, texts)
    # The functions of these are made only when they are called.
    for other in _OTHERWISE.findall(found[name]):
        whole.insert(0, f"local function otherwise()\n{assemble(other, instead=instead)}\nend")
    for other in [each for text in found.values() for each in _WHEN_NEEDED.findall(text)]:
        whole.insert(0, f"local function {other}(...)\n{assemble(other, instead=instead)}\nend")
    return "\n".join(line for line in "\n".join(whole).splitlines() if line.strip())


def _enclosed(name: str, texts: Mapping[str, str]) -> list[str]:
    words = {piece: set(re.findall(r"\w+", text)) for piece, text in texts.items()}
    shared: dict[str, int] = {}
    parts = [_enclose(piece, texts[piece], words, shared) for piece in texts if piece != name]
    # Lua looks for a name that a function uses from the last one declared backwards, every time it makes the
    # function: declared in this order, a call costs a third of what it does in the order of the pieces.
    names = sorted(shared, key=shared.__getitem__)
    return [f"local {', '.join(names)}" if names else "", *parts, texts[name]]


def _enclose(piece: str, text: str, words: Mapping[str, set[str]], shared: dict[str, int]) -> str:
    """A piece as a function. The names that others use are added to `shared`, with how many use them."""
    others = [each for other, each in words.items() if other != piece]

    def declare(match: re.Match[str]) -> str:
        names = [each.strip() for each in (match[1] or match[2]).split(",")]
        uses = {each: sum(each in other for other in others) for each in names}
        if not any(uses.values()):
            return match[0]
        shared.update(uses)
        if match[1]:
            return f"{match[1]} = function"
        return match[0].removeprefix("local ") if match[0].endswith("=") else ""

    return f"do local function piece()\n{_NAMES.sub(declare, text)}\nend piece() end"


@cache
def script(name: str) -> Script:
    """A script by name."""
    text = assemble(name).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
