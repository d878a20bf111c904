"""`windlass enqueue`: enqueue a call of a task, with its arguments as a JSON object."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from cyclopts import Parameter

from windlass import Windlass
from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.failure import UsageError
from windlass.cli.opening import with_service
from windlass.cli.output import say, say_json
from windlass.client.options import CallOptions
from windlass.errors import InvalidPayload, PayloadTooLarge

_LARGEST = 64 * 1024 * 1024
"""Read at most this many bytes. The app's own limit is far lower and has the better message."""


def enqueue_task(
    app: given.App,
    task: Annotated[str, Parameter(help="The task's name.")],
    arguments: Annotated[
        str,
        Parameter(
            help='Its arguments as a JSON object, such as {"to": "a@example.com"}; "-" reads it from '
            'standard input, "@file" from a file.',
            allow_leading_hyphen=True,
        ),
    ] = "{}",
    /,
    *,
    delay: Annotated[str | None, Parameter(help='Run it this much later: 30, "5m", "24h".')] = None,
    run_at: Annotated[
        str | None, Parameter(help='Run it at this time, given with its zone: "2030-01-31T08:00Z".')
    ] = None,
    priority: Annotated[int | None, Parameter(help="From -100 to 100, higher first.")] = None,
    queue: Annotated[str | None, Parameter(help="The queue; by default the task's own.")] = None,
    lane: Annotated[
        str | None, Parameter(help="The lane: a tenant, an account or an upstream service.")
    ] = None,
    key: Annotated[
        str | None, Parameter(help="A unique key: at most one unfinished job of the task has it.")
    ] = None,
    mode: Annotated[
        Literal["ignore", "replace", "throttle"] | None,
        Parameter(help="What a second call with the same key does."),
    ] = None,
    window: Annotated[str | None, Parameter(help="How long the key stays taken after the job ends.")] = None,
    expires: Annotated[
        str | None, Parameter(help="Make it a dead letter if it has not started within this time.")
    ] = None,
    max_attempts: Annotated[int | None, Parameter(help="Attempts before it becomes a dead letter.")] = None,
    after: Annotated[tuple[str, ...], Parameter(help="The id of a job to wait for; repeat for more.")] = (),
    on_failure: Annotated[
        Literal["cancel", "ignore", "run"] | None,
        Parameter(help="What to do if a job that it waits for fails."),
    ] = None,
    tag: Annotated[tuple[str, ...], Parameter(help="A tag; repeat for more.")] = (),
    header: Annotated[tuple[str, ...], Parameter(help="A header, name=value; repeat for more.")] = (),
    flow: Annotated[str | None, Parameter(help="The flow that it belongs to.")] = None,
    json: given.Json = False,
) -> int:
    """Enqueue a task. Its arguments are checked against the function's signature."""
    said: dict[str, Any] = {
        "delay": delay,
        "run_at": None if run_at is None else _instant(run_at),
        "priority": priority,
        "queue": queue,
        "lane": lane,
        "key": key,
        "mode": mode,
        "window": window,
        "expires": expires,
        "max_attempts": max_attempts,
        "after": list(after) or None,
        "on_failure": on_failure,
        "tags": tag or None,
        "headers": _headers(header) or None,
        "flow": flow,
    }
    options = cast("CallOptions", {name: value for name, value in said.items() if value is not None})
    document = read_document(arguments)

    async def work(service: Service) -> None:
        with saying_what_is_wanted(service.app, task):
            job = await service.enqueueing.call(task, document, options)
        if json:
            say_json({"id": job.id, "task": task, "created": job.created})
        else:
            say(job.id if job.created else f"{job.id} (a job with this key existed already)")

    return with_service(app, work, quiet=True)


@contextmanager
def saying_what_is_wanted(app: Windlass, task: str) -> Generator[None]:
    """Add to an error about arguments which arguments the task takes."""
    try:
        yield
    except PayloadTooLarge:
        raise
    except InvalidPayload as error:
        raise UsageError(f"{error}; {_wanted(app, task)}") from None


def _wanted(app: Windlass, task: str) -> str:
    """Describe the arguments of a task, in the form of this command."""
    schema = app.tasks[task].signature.schema()
    fields: dict[str, Any] = schema.get("properties", {})
    required = set(schema.get("required", ()))
    if not fields:
        return f"{task} takes no arguments: {{}}"
    names = ", ".join(name if name in required else f"[{name}]" for name in fields)
    some = [name for name in fields if name in required] or list(fields)[:1]
    example = dumps({name: _example(fields[name], schema.get("$defs", {})) for name in some})
    return f"{task} takes a JSON object of: {names}, such as '{example}'"


def _example(schema: dict[str, Any], named: dict[str, Any], depth: int = 0) -> Any:
    """A value of the shape that a JSON Schema describes. Formats, such as a time, are not looked at."""
    if depth > _DEEPEST:
        return None
    if reference := schema.get("$ref"):
        return _example(named.get(reference.rpartition("/")[2], {}), named, depth + 1)
    for word in ("enum", "anyOf", "oneOf", "allOf"):
        if choices := schema.get(word):
            return choices[0] if word == "enum" else _example(choices[0], named, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("type") != "object":
        return _EXAMPLES.get(schema.get("type"))
    fields = schema.get("properties", {})
    return {name: _example(fields.get(name, {}), named, depth + 1) for name in schema.get("required", ())}


_DEEPEST = 8
_EXAMPLES: dict[Any, Any] = {"integer": 1, "number": 1.5, "string": "text", "boolean": True, "array": []}
"""By the types of JSON Schema."""


def read_document(arguments: str) -> bytes:
    """Read a JSON object that the command line names."""
    if arguments == "-":
        return sys.stdin.buffer.read(_LARGEST)
    if arguments.startswith("@"):
        path = Path(arguments[1:])
        try:
            with path.open("rb") as file:
                return file.read(_LARGEST)
        except OSError as error:
            raise UsageError(f"cannot read the arguments from {path}: {error.strerror}") from None
    try:
        return arguments.encode()
    except UnicodeEncodeError:
        raise UsageError("the arguments are not UTF-8 text") from None


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f'--run-at must be a time such as "2030-01-31T08:00:00Z", not "{text}"; for a duration: --delay'
        ) from None
    if at.tzinfo is None:
        raise UsageError(
            f'--run-at needs a time zone: "{text}Z" is UTC, "{text}+02:00" two hours ahead of it'
        )
    return at


def _headers(given_: tuple[str, ...]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for text in given_:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f'--header must be name=value, not "{text}"')
        headers[name] = value
    return headers
