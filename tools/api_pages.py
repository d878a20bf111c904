"""The reference of the Python API as Markdown pages, made from signatures and docstrings: `make docs`.

Public names only: what `__all__` of `windlass`, `windlass.testing` and `windlass.api` list, every error, and
what the pages of the documentation import from other modules.
"""

import inspect
import re
from collections.abc import Iterator
from types import ModuleType

import msgspec

import windlass
import windlass.api
import windlass.django.testing
import windlass.errors
import windlass.observe.failures
import windlass.observe.logs
import windlass.observe.watch
import windlass.sentry
import windlass.testing

_QUALIFIED = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")
_QUOTED = re.compile(r"(: |-> |\[|, )'([A-Z][^']*)'")
_UNPACKED = re.compile(r"\*<class '(\w+)'>")
_CLASS = re.compile(r"<class '(\w+)'>")
_VARIANCE = re.compile(r"(?<=[\[ ])[+~-](?=[A-Z])")
_WIDEST = 90
_INTERNAL = {
    "Windlass": [
        "asend",
        "asend_one",
        "declare",
        "expect_callbacks",
        "find",
        "is_hooked",
        "not_known",
        "outgoing",
        "place_of",
        "renew",
        "runnable",
        "send",
        "send_jobs",
        "signature_of",
    ],
    "Task": ["job", "rebuilt"],
    "OutgoingJob": ["changed"],
    "WindlassIntegration": ["setup_once"],
}
"""Members without an underscore that other rooms of Windlass use, and programs do not."""


def error_names() -> list[str]:
    """The names of all errors that Windlass raises, base classes first."""
    found = {name: value for name, value in vars(windlass.errors).items() if inspect.isclass(value)}
    return sorted(found, key=lambda name: (len(found[name].__mro__), name))


def names() -> dict[str, list[str]]:
    """The public names of each page."""
    return {
        "windlass": [name for name in windlass.__all__ if not name.startswith("_")],
        "windlass.testing": list(windlass.testing.__all__),
        "windlass.api": list(windlass.api.__all__),
        "windlass.errors": error_names(),
        "windlass.django.testing": ["jobs"],
        "windlass.observe.failures": ["Failure", "add_failure_listener", "remove_failure_listener"],
        "windlass.observe.logs": ["JsonFormatter", "TextFormatter"],
        "windlass.observe.watch": ["Watch", "page"],
        "windlass.sentry": ["WindlassIntegration"],
    }


_MODULES: dict[str, tuple[ModuleType, str]] = {
    "windlass": (windlass, "What programs import: `from windlass import Windlass`."),
    "windlass.testing": (windlass.testing, "For tests of your code: `from windlass.testing import testing`."),
    "windlass.api": (
        windlass.api,
        "Dashboard and API in your application: `from windlass.api import Mounted`.",
    ),
    "windlass.errors": (windlass.errors, "Every error that Windlass raises, in one tree."),
    "windlass.django.testing": (windlass.django.testing, "For tests of a [Django](../django.md) project."),
    "windlass.observe.failures": (
        windlass.observe.failures,
        "Failed runs, for [another tracker](../logging-and-sentry.md#another-tracker).",
    ),
    "windlass.observe.logs": (
        windlass.observe.logs,
        "Formatters of [lines of the log](../logging-and-sentry.md#loggers).",
    ),
    "windlass.observe.watch": (
        windlass.observe.watch,
        "[Metrics](../observability.md) of a program of yours.",
    ),
    "windlass.sentry": (windlass.sentry, "The integration for [Sentry](../logging-and-sentry.md#sentry)."),
}


def pages() -> dict[str, str]:
    """The pages by their module's name."""
    return {module: "\n".join(_page(module, listed)) for module, listed in names().items()}


def _page(module: str, listed: list[str]) -> Iterator[str]:
    source, about = _MODULES[module]
    yield f"# `{module}`\n\n{about}\n"
    for name in listed:
        yield from _entry(name, getattr(source, name))


def _entry(name: str, value: object) -> Iterator[str]:
    yield f"## `{name}`\n"
    if inspect.isclass(value):
        yield from _class(name, value)
    elif callable(value) and inspect.isfunction(inspect.unwrap(value)):
        yield _signature(name, value)
        yield _docstring(value)
    elif type(value).__module__.startswith(
        "windlass"
    ):  # an object that is imported as it is, such as `current`
        yield _docstring(type(value))
        yield from _members(name, type(value))
    else:
        yield f"```python\n{name} = {_plain(str(value))}\n```\n"


def _class(name: str, kind: type) -> Iterator[str]:
    if issubclass(kind, BaseException):
        base = kind.__bases__[0].__name__
        yield f"```python\nclass {name}({base})\n```\n"
    else:
        yield _signature(name, kind)
    yield _docstring(kind)
    if fields := [] if not issubclass(kind, msgspec.Struct) else msgspec.structs.fields(kind):
        rows = [f"| `{field.name}` | `{_annotation(field.type)}` |" for field in fields]
        yield "\n".join(("| field | type |", "|---|---|", *rows, ""))
    if not issubclass(kind, BaseException):
        yield from _members(name, kind)


def _members(owner: str, kind: type) -> Iterator[str]:
    for name, member in _public_members(kind).items():
        if isinstance(member, property):
            yield f"### `{owner}.{name}`\n"
            returned = inspect.signature(member.fget).return_annotation if member.fget else None
            if returned not in (None, inspect.Signature.empty):
                yield f"```python\n{name}: {_annotation(returned)}\n```\n"
            yield _docstring(member)
        elif callable(getattr(member, "__func__", member)):
            yield f"### `{owner}.{name}`\n"
            yield _signature(name, getattr(member, "__func__", member))
            yield _docstring(getattr(member, "__func__", member))


def _public_members(kind: type) -> dict[str, object]:
    """Methods and properties with a docstring, of the class and of those bases that are Windlass's."""
    found: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("windlass"):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    plain = {name: getattr(value, "__func__", value) for name, value in found.items()}
    return {
        name: found[name]
        for name, value in sorted(plain.items())
        if (isinstance(value, property) or inspect.isfunction(value))
        and name not in _INTERNAL.get(kind.__name__, ())
    }


def _signature(name: str, value: object) -> str:
    try:
        found = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return f"```python\n{name}\n```\n"
    parameters = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    text = _plain(f"{name}{found.replace(parameters=parameters)}")
    if len(text) > _WIDEST and parameters:
        shown = _marked(parameters)
        returned = found.return_annotation
        arrow = "" if returned is inspect.Signature.empty else f" -> {_annotation(returned)}"
        text = "\n".join((f"{name}(", *(f"    {_plain(line)}," for line in shown), f"){arrow}"))
    star = "async " if inspect.iscoroutinefunction(value) else ""
    return f"```python\n{star}{text}\n```\n"


def _marked(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """The parameters, one a line, with the `/` and `*` between their kinds."""
    seen: set[object] = set()
    for parameter in parameters:
        if parameter.kind is not parameter.POSITIONAL_ONLY and seen == {parameter.POSITIONAL_ONLY}:
            yield "/"
        if parameter.kind is parameter.KEYWORD_ONLY and not seen & {
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        }:
            yield "*"
        yield str(parameter)
        seen.add(parameter.kind)


def _annotation(value: object) -> str:
    return _plain(inspect.formatannotation(value))


def _plain(text: str) -> str:
    """Types as code writes them: without their modules, quotes and signs of variance."""
    text = _CLASS.sub(r"\1", _UNPACKED.sub(r"Unpack[\1]", _QUALIFIED.sub("", text)))
    return _VARIANCE.sub("", _QUOTED.sub(r"\1\2", text)).replace("NoneType", "None")


def _docstring(value: object) -> str:
    return f"{inspect.getdoc(value) or ''}\n"
