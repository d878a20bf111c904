"""Job ids: UUIDv7 (RFC 9562) as canonical lower-case text.

    0192e4a0-5b3c-7abc-8def-0123456789ab
    └────┬──────┘  └┬┘  └┬─────────┬───┘
    48 bits: ms     12 + 62 bits: random; with a tag, the last 16 (4 digits) are the tag

A tag says which namespace a job lives in, so that a bare id leads to it without an index. It has a fixed place
at the end, which Lua and SQL can cut out. 58 random bits are left: at a million ids in the same second, the chance
of two equal ones is below 2^-29.

Ids are never the order of jobs (the store's sequence is), so a clock that is wrong harms nothing.
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager

from windlass.core.option import shown, whole
from windlass.core.units import JobId
from windlass.errors import InvalidOption

TAG_BITS = 16
RANDOM_BITS = 74
MAX_TAG = (1 << TAG_BITS) - 1

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_RANDOM_BYTES = 10
_STEP_BYTES = 4
_POOL_BYTES = 4096
_MAX_RANDOM = (1 << RANDOM_BITS) - 1
_MAX_MS = (1 << 48) - 1
_LOW_BITS = 62
_MAX_LOW = (1 << _LOW_BITS) - 1


def new_job_id(now_ms: int, random_bits: bytes | int, tag: int | None = None) -> JobId:
    """The id for a time in milliseconds and 74 random bits: 10 bytes, of which 6 bits are left out, or an int."""
    now_ms = whole(now_ms, name="now_ms", least=0, most=_MAX_MS)
    if isinstance(random_bits, bytes):
        if len(random_bits) != _RANDOM_BYTES:
            raise InvalidOption(f"random_bits must be {_RANDOM_BYTES} bytes, got {len(random_bits)}")
        random_bits = int.from_bytes(random_bits, "big") & _MAX_RANDOM
    random_bits = whole(random_bits, name="random_bits", least=0, most=_MAX_RANDOM)
    if tag is not None:
        random_bits = random_bits & ~MAX_TAG | whole(tag, name="tag", least=0, most=MAX_TAG)
    return _text(_prefix(now_ms), random_bits)


def check_job_id(text: object) -> JobId:
    """Return a job id, or refuse anything that is not exactly one."""
    if not isinstance(text, str) or not _CANONICAL.fullmatch(text):
        raise InvalidOption(
            f"job id {shown(text)} is not a UUIDv7 in lower-case text such as 0192e4a0-5b3c-7abc-8def-0123456789ab"
        )
    return str.__str__(text)


def created_ms(job_id: JobId) -> int:
    """When a job id was made, in milliseconds by the clock of its maker."""
    return int(job_id[:8] + job_id[9:13], 16)


def tag_of(job_id: JobId) -> int:
    """The tag of a job id; random if it was made without one."""
    return int(job_id[-4:], 16)


class JobIds:
    """Makes job ids, each greater than the one before.

    Within a millisecond (or while the clock is behind) the random bits are counted up by random steps, so that
    neighbours cannot be guessed.
    """

    def __init__(
        self,
        clock_ms: Callable[[], int],
        randbytes: Callable[[int], bytes],
        *,
        lock: Callable[[], AbstractContextManager[object]],
        tag: int | None = None,
    ) -> None:
        """Take a clock, a source of randomness (`os.urandom`) and a maker of locks (`threading.Lock`)."""
        self._clock_ms = clock_ms
        self._randbytes = randbytes
        self._make_lock = lock
        self._low = 0 if tag is None else whole(tag, name="tag", least=0, most=MAX_TAG)
        self._shift = 0 if tag is None else TAG_BITS
        self._count_bits = RANDOM_BITS - self._shift
        self._first_mask = (1 << self._count_bits - 1) - 1
        self.reseed()

    def __call__(self) -> JobId:
        """A new id."""
        with self._lock:
            now = self._clock_ms()
            if now > self._ms:
                self._start(now)
            else:
                self._count += self._draw(_STEP_BYTES) + 1
                if self._count >> self._count_bits:
                    self._start(self._ms + 1)
            return _text(self._prefix, self._count << self._shift | self._low)

    def reseed(self) -> None:
        """Forget everything drawn so far. Call it in the child after a fork, lest both make the same ids."""
        self._lock = self._make_lock()  # the old one may be held by a thread that the child does not have
        self._pool = b""
        self._drawn = 0
        self._ms = -1
        self._prefix = ""
        self._count = 0

    def _start(self, ms: int) -> None:
        # The first bit stays 0, as RFC 9562 advises: room to count up.
        self._ms = ms
        self._prefix = _prefix(ms)
        self._count = self._draw(_RANDOM_BYTES) & self._first_mask

    def _draw(self, count: int) -> int:
        end = self._drawn + count
        if end > len(self._pool):
            self._pool = self._randbytes(
                _POOL_BYTES
            )  # one call for a thousand steps: 0.01 µs instead of 0.4 µs each
            end = count
        self._drawn = end
        return int.from_bytes(self._pool[end - count : end], "big")


def _prefix(ms: int) -> str:
    digits = f"{ms:012x}"
    return f"{digits[:8]}-{digits[8:]}-7"


def _text(prefix: str, random_bits: int) -> JobId:
    low = f"{random_bits & _MAX_LOW | 1 << 63:x}"
    return f"{prefix}{random_bits >> _LOW_BITS:03x}-{low[:4]}-{low[4:]}"
