"""The linker: a script is a verb (`lua/verbs`) with the parts (`lua/parts`) that it includes.

A line `-- include: a, b` names parts. A part with a line `-- module: name` is a table of functions of that
name. Its text runs when one of them is first used, since the server makes every function of a script anew at
every call. Other parts stand there as they are. Codes and constants are put in from `codes.py`.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import NamedTuple

from windlass.broker.redis.codes import literals

_INCLUDE = re.compile(r"^-- include: (.+)$", re.MULTILINE)
_MODULE = re.compile(r"^-- module: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$|\s+-- .*$", re.MULTILINE)
_WORD = re.compile(r"\$(\w+(?:\.\w+)?)")
_WHEN_USED = """\
local makers = {}
local unmade = {__index = function(module, name)
  setmetatable(module, nil)
  makers[module](module)
  return module[name]
end}
local function when_used(make)
  local module = setmetatable({}, unmade)
  makers[module] = make
  return module
end
local function is_used(module) return getmetatable(module) == nil end"""


class Script(NamedTuple):
    """A script as the server gets it."""

    name: str
    text: bytes
    sha: bytes


def source(folder: str, name: str) -> str:
    """The text of a verb or a part."""
    files = resources.files("windlass.broker.redis").joinpath("lua", folder, f"{name}.lua")
    return files.read_text(encoding="utf-8")


def link(verb: str, *, instead: Mapping[str, str] = MappingProxyType({})) -> str:
    """The whole text of a verb. Tests put other text in the place of a part."""
    return link_text(source("verbs", verb), instead=instead)


def link_text(text: str, *, instead: Mapping[str, str] = MappingProxyType({})) -> str:
    """A script of any text that includes parts."""
    parts: dict[str, str] = {}
    _gather(text, parts, instead)
    modules = [found[1] for part in parts.values() if (found := _MODULE.search(part))]
    pieces: list[str] = []
    for part in parts.values():
        found = _MODULE.search(part)
        if found and _WHEN_USED not in pieces:
            pieces += [_WHEN_USED, f"local {', '.join(modules)}"]
        pieces.append(f"{found[1]} = when_used(function({found[1]})\n{part}\nend)" if found else part)
    whole = _substitute(_COMMENT.sub("", "\n".join([*pieces, text])))
    return "\n".join(line for line in whole.splitlines() if line.strip())


def _gather(text: str, parts: dict[str, str], instead: Mapping[str, str]) -> None:
    for line in _INCLUDE.findall(text):
        for name in (each.strip() for each in line.split(",")):
            if name not in parts:
                parts[name] = ""  # parts may include each other
                part = instead.get(name) or source("parts", name)
                _gather(part, parts, instead)
                del parts[name]
                parts[name] = part


def _substitute(text: str) -> str:
    words = _literals()
    return _WORD.sub(lambda found: words[found[1]], text)


@cache
def _literals() -> dict[str, str]:
    return literals()


@cache
def script(verb: str) -> Script:
    """The script of a verb."""
    text = link(verb).encode()
    return Script(verb, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
