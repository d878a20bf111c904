"""Tasks of Windlass itself: workers run them like others, but no client can enqueue them.

They are apart from an app's tasks, which all doors look at, so that a new door is closed to them by itself.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from windlass.client.task import TaskKeywords, TaskOptions, task_options
from windlass.config import Config
from windlass.core.signature import Signature
from windlass.core.webhook import QUEUE, TASK


class BuiltIn(msgspec.Struct, frozen=True, kw_only=True):
    """A task without a way to send it."""

    name: str
    function: Callable[..., Any]
    signature: Signature
    options: TaskOptions


def built_in(config: Config) -> dict[str, BuiltIn]:
    """Those that workers of an app need under these settings, by name."""
    if not config.webhooks:
        return {}
    from windlass.worker.delivering import RETRY, TIMEOUT, deliver  # noqa: PLC0415 - most need none of it

    options: TaskKeywords = {"retry": RETRY, "timeout": TIMEOUT}
    signature = Signature(deliver, name=TASK, max_payload=config.max_payload)
    return {
        TASK: BuiltIn(
            name=TASK, function=deliver, signature=signature, options=task_options(QUEUE, options, signature)
        )
    }
