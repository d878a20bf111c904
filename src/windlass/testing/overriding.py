"""Putting something else in the place of a dependency, for a test."""

import contextlib
from collections.abc import Callable, Generator
from typing import Any

from windlass.core.dependency import kind_of, named, ordered
from windlass.core.option import shown
from windlass.errors import InvalidOption
from windlass.worker.injection import replaced

__tracebackhide__ = True  # a test that fails is shown without these frames


@contextlib.contextmanager
def override(source: Callable[..., Any], fake: Callable[..., Any]) -> Generator[None]:
    """For a block, call `fake` wherever a task or a dependency has `Depends(source)`.

    `fake` is a function of any kind that `Depends` accepts, and may have dependencies itself. It applies to
    all apps of this process, and to jobs whose run begins inside the block.
    """
    if isinstance(source, type) or not callable(source):
        raise InvalidOption(f"override takes the function that is in Depends(...), not {shown(source)}")
    if not callable(fake):
        raise InvalidOption(
            f"override calls a function in place of {named(source)}(), not {shown(fake)}; for a value write "
            "lambda: value"
        )
    kind_of(fake)
    before = replaced.get(source)
    replaced[source] = fake
    try:
        ordered({"fake": source}, label=f"override({named(source)}, ...)", replaced=replaced)
        yield
    finally:
        if before is None:
            del replaced[source]
        else:
            replaced[source] = before
