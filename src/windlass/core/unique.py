"""Unique by arguments: the dedup key of a job, made of the values of its arguments."""

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

import msgspec

from windlass.core.duration import Duration, micros
from windlass.core.job import Mode
from windlass.core.option import choice, shown
from windlass.core.secret import holds_secret
from windlass.core.signature import Signature
from windlass.core.spelling import hint
from windlass.errors import InvalidOption

LONGEST_READABLE = 120
"""Bytes of a key that stays readable; a longer one is a digest."""
WITHOUT_ARGUMENTS = "()"


class Unique:
    """Calls with the same values of these arguments make one job.

        @app.task(unique=Unique("user_id", window="1h"))

    Without names all arguments count. `mode` says what a later call does while the first job is unfinished:
    `ignore`, `replace` or `throttle`. `window` says how long the key stays taken after the first job has
    ended.
    """

    def __init__(
        self,
        *arguments: str,
        window: Duration | None = None,
        mode: Literal["ignore", "replace", "throttle"] = "ignore",
    ) -> None:
        if odd := [name for name in arguments if not isinstance(name, str)]:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(
                f'Unique takes the names of arguments, as in Unique("user_id"), not {shown(odd[0])}'
            )
        self.arguments = arguments
        self.mode = choice(mode, name="mode", among=tuple(Mode))
        self.window = 0 if window is None else micros(window, name="window")

    def __repr__(self) -> str:
        return f"Unique({', '.join(map(repr, self.arguments))})"


class UniqueKeys:
    """Makes the keys of the jobs of one task."""

    def __init__(self, unique: Unique, signature: Signature) -> None:
        """`InvalidOption` names an argument that there is none of, or whose value may not be in a key."""
        known = signature.annotations
        for name in unique.arguments:
            if name not in known:
                those = hint(name, known, "its arguments are")
                raise InvalidOption(f'task "{signature.name}": unique= names "{name}"; {those}')
        self.options: Mapping[str, Any] = {
            "mode": unique.mode,
            "window": timedelta(microseconds=unique.window),
        }
        """As `using` takes them."""
        self._signature = signature
        self._annotations = {name: known[name] for name in unique.arguments or known}
        for name in self._annotations:
            self._refuse_secret(name, named=bool(unique.arguments))
        self._defaults = {name: self._default(name) for name in self._annotations}

    def of(self, payload: bytes) -> str:
        """The key of a call: the same for the same values, however the call was written."""
        given = self._signature.arguments(payload)
        parts: list[str] = []
        hides = False
        for name, annotation in self._annotations.items():
            if name in given:
                document = self._signature.canonical(given[name])
                value = msgspec.json.decode(document)
                hides = hides or holds_secret(value, annotation, names=self._signature.names)
            else:
                document = self._defaults[name]
            parts.append(f"{name}={document.decode()}")
        text = ",".join(parts) or WITHOUT_ARGUMENTS
        # A key is shown to every operator.
        written = text.encode()
        if hides or len(written) > LONGEST_READABLE or not text.isprintable():
            return f"sha256:{hashlib.sha256(written).hexdigest()}"
        return text

    def _refuse_secret(self, name: str, *, named: bool) -> None:
        if self._signature.is_secret(name):
            why = "name another" if named else 'name those that count, as in Unique("user_id")'
            raise InvalidOption(
                f'task "{self._signature.name}": argument "{name}" is a secret, and every operator can '
                f"read a unique key; {why}"
            )

    def _default(self, name: str) -> bytes:
        """What stands for an argument that a call does not give; nothing, if it must."""
        try:
            return self._signature.canonical_default(name) or b""
        except Exception as error:
            raise InvalidOption(
                f'task "{self._signature.name}": the default of argument "{name}" cannot be part of a unique '
                f"key: {error}"
            ) from error
