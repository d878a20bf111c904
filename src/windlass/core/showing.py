"""What may be seen of a job from the outside: its arguments, result, headers and errors, with secrets and
private values masked. All that show a job (API, command line, archive, relays) ask here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windlass.core.codec import UNREADABLE, is_reference, open_result, plain_arguments, size_of
from windlass.core.outcome import Error
from windlass.core.private import each_text, masked_private, without_private
from windlass.core.secret import Cleaner, masked
from windlass.core.signature import Signature
from windlass.core.webhook import without_callback
from windlass.errors import UnreadablePayload


class Shower:
    """Shows jobs of one task. Without its signature names tell what is secret. With `secrets` it hides
    nothing.
    """

    __slots__ = ("_patterns", "_secrets", "_signature")

    def __init__(
        self, signature: Signature | None, patterns: Sequence[str] = (), *, secrets: bool = False
    ) -> None:
        self._signature = signature or _UNTYPED
        self._patterns = () if secrets else patterns
        self._secrets = secrets

    def clean(self, text: str) -> str:
        """A text that a worker has written, and has taken the job's own secrets out of: without what looks
        private.
        """
        return without_private(text, self._patterns) if self._patterns else text

    def error(self, error: Error) -> Error:
        """An error, likewise."""
        if not self._patterns:
            return error
        return msgspec.structs.replace(
            error,
            message=self.clean(error.message),
            traceback=self.clean(error.traceback),
            cause=self.clean(error.cause),
        )

    def arguments(self, payload: bytes) -> Any:
        """The arguments of a payload; in words why, if they cannot be read."""
        if is_reference(payload):
            return elsewhere(payload)
        try:
            return self.readable_arguments(payload)
        except (UnreadablePayload, *UNREADABLE) as error:
            return str(error)

    def readable_arguments(self, payload: bytes) -> dict[str, Any]:
        """The arguments of a payload. `UNREADABLE` and `UnreadablePayload` if it cannot be read."""
        args, kwargs = plain_arguments(payload)
        if not self._secrets:
            args, kwargs = self._signature.masked(args, kwargs)
        return masked_private({"args": args, "kwargs": kwargs}, self._patterns)

    def result(self, result: bytes | None, payload: bytes) -> Any:
        """A result, without the secrets that its job was called with; in words why, if it cannot be read."""
        if result is not None and is_reference(result):
            return elsewhere(result)
        try:
            value = None if result is None else msgspec.json.decode(open_result(result).r)
        except (UnreadablePayload, msgspec.MsgspecError, UnicodeDecodeError) as error:
            return str(error)
        if self._secrets or value is None:
            return value
        clean = Cleaner(self._signature.secrets_in(payload), self._patterns)
        return each_text(self._signature.masked_result(value), clean)

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers; of a callback only who it is."""
        found = without_callback(headers)
        return (
            found
            if self._secrets
            else masked_private(masked(found, names=self._signature.names), self._patterns)
        )


_UNTYPED = Signature.untyped("job")


def elsewhere(reference: bytes) -> str:
    """What is shown for a value that is in object storage, and is not read for this."""
    return f"{size_of(reference):,} bytes, in object storage"
