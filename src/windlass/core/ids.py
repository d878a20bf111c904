"""Job ids: UUIDv7 (RFC 9562) as canonical lower-case text.

    0192e4a0-5b3c-7abc-8def-0123456789ab
    └─────┬─────┘  └┬┘  └───────┬──────┘
    48 bits: ms     12 and 62 random bits; in a tagged id the last 16 (four digits) are the tag

The tag of a namespace is a hash of its name. It says where to look for a job first, so that a bare id leads
to it without an index; namespaces may share one, and an id made elsewhere has random digits in its place. It
leaves 58 random bits: of a million ids that many processes make in one second, two are equal with a chance
of about 2^-29; those that one process makes never are.

Ids are never the order of jobs (the store's sequence is), so a wrong clock harms nothing.
"""

import hashlib
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import accumulate
from sys import byteorder

from windlass.core.option import shown, whole
from windlass.core.units import JobId, Micros
from windlass.errors import InvalidOption

TAG_BITS = 16
RANDOM_BITS = 74
MAX_TAG = (1 << TAG_BITS) - 1

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_RANDOM_BYTES = 10
_MAX_RANDOM = (1 << RANDOM_BITS) - 1
_MAX_MS = (1 << 48) - 1
_LAST_BITS = 48  # the last group of digits
_LAST = (1 << _LAST_BITS) - 1
_BEGINNING = "%08x-%04x-7%03x-%04x-"
_FIRST_MASK = (1 << 12) - 1
_VARIANT, _VARIANT_MASK = 1 << 15, (1 << 14) - 1
_STEPS = 1024
_LENGTH = 36


def new_job_id(now_ms: int, random_bits: bytes | int, tag: int | None = None) -> JobId:
    """The id for a time in milliseconds and 74 random bits: an int, or 10 bytes with 6 bits to spare."""
    now_ms = whole(now_ms, name="now_ms", least=0, most=_MAX_MS)
    if isinstance(random_bits, bytes):
        random_bits = _from_bytes(random_bits)
    random_bits = whole(random_bits, name="random_bits", least=0, most=_MAX_RANDOM)
    if tag is not None:
        random_bits = random_bits & ~MAX_TAG | whole(tag, name="tag", least=0, most=MAX_TAG)
    return f"{_beginning(now_ms, random_bits)}{random_bits & _LAST:012x}"


def derived_id(at: Micros, tag: int, *about: object) -> JobId:
    """The id of a job that follows from something else: the same each time, so that there is one such job.
    Its time may be anybody's: one that no id can hold is that of the first or the last id.
    """
    text = "\x00".join(str(part) for part in about).encode(errors="surrogatepass")
    return new_job_id(min(max(0, at) // 1_000, _MAX_MS), hashlib.blake2b(text, digest_size=10).digest(), tag)


def is_job_id(text: str) -> bool:
    """Whether text has the form of a job id."""
    return _CANONICAL.fullmatch(text) is not None


def check_job_id(text: object) -> JobId:
    """Return a job id, or refuse whatever is not exactly one."""
    if not isinstance(text, str) or not _CANONICAL.fullmatch(text):
        raise InvalidOption(
            f"job id {shown(text)} is not a UUIDv7 in lower-case text, such as "
            "0192e4a0-5b3c-7abc-8def-0123456789ab"
        )
    return str.__str__(text)


def created_ms(job_id: JobId) -> int:
    """When a job id was made, in milliseconds by the clock of its maker."""
    return int(job_id[:8] + job_id[9:13], 16)


def tag_of(job_id: JobId) -> int:
    """The tag of a job id; random bits if it was made without one."""
    return int(job_id[-4:], 16)


def namespace_tag(namespace: str) -> int:
    """The tag of the ids of a namespace."""
    return int.from_bytes(hashlib.blake2b(namespace.encode(), digest_size=2).digest(), "big")


class JobIds:
    """Makes job ids, each greater than the one before (except for those that a signal handler asks for while
    one is made).

    Within a millisecond, or while the clock is behind, the last bits count up in random steps; the rest is
    drawn anew with each millisecond.
    """

    def __init__(
        self,
        clock_ms: Callable[[], int],
        randbytes: Callable[[int], bytes],
        *,
        lock: Callable[[], AbstractContextManager[object]],
        tag: int | None = None,
    ) -> None:
        """Take a clock, a source of randomness (`os.urandom`) and a maker of locks (`threading.RLock`)."""
        self._clock_ms = clock_ms
        self._randbytes = randbytes
        self._make_lock = lock
        self._tag = 0 if tag is None else whole(tag, name="tag", least=0, most=MAX_TAG)
        self._shift = 0 if tag is None else TAG_BITS
        digits = 12 - self._shift // 4
        self._form = f"%0{digits}x" + ("" if tag is None else f"{self._tag:04x}")
        self._whole = _BEGINNING + self._form
        each = sum(1 << 32 * place for place in range(_STEPS))
        self._random_steps, self._least_steps = (0xFFFF << self._shift) * each, (1 << self._shift) * each
        self.reseed()

    def __call__(self) -> JobId:
        """A new id."""
        with self._lock:
            if self._counting:
                return self._apart()
            self._counting = True
            try:
                return self._following()
            finally:
                self._counting = False

    def _following(self) -> JobId:
        """An id that is greater than the last."""
        now = self._clock_ms()
        if now > self._ms:
            return self._start(now)
        made = next(self._texts or self._counted(), None) or self._next()
        if len(made) != _LENGTH:  # the counter is full
            return self._start(self._ms + 1)
        self._last = made
        return made

    def _apart(self) -> JobId:
        """An id beside the order: a signal handler asks for it, in the thread that it has interrupted in the
        middle of counting.
        """
        return new_job_id(
            self._clock_ms(), self._randbytes(_RANDOM_BYTES), self._tag if self._shift else None
        )

    def many(self, count: int) -> list[JobId]:
        """So many new ids, with one look at the clock."""
        made: list[JobId] = []
        with self._lock:
            if self._counting:
                return [self._apart() for _ in range(count)]
            self._counting = True
            try:
                while len(made) < count:
                    made.append(self._following())
                    made += self._behind(min(count - len(made), _STEPS))
            finally:
                self._counting = False
        return made

    def _behind(self, count: int) -> list[JobId]:
        """The next ids of this millisecond, as many as there are of so many. Nothing is done for each of them
        in Python, and no text is formed twice: 0.15 µs an id.
        """
        if count == 0:
            return []
        drawn = int.from_bytes(self._randbytes(4 * count), byteorder) & self._random_steps
        drawn |= self._least_steps >> 32 * (_STEPS - count)
        steps = memoryview(drawn.to_bytes(4 * count, byteorder)).cast("I")
        numbers = list(accumulate(steps, initial=int(self._last[-12:], 16)))[1:]
        # Is the counter full, the next call finds it so as well.
        while numbers and numbers[-1] > _LAST:
            numbers.pop()
        if not numbers:
            return []
        # Of the sixteen digits of eight bytes four are zeros: the beginning of an id takes their place.
        digits = struct.pack(f">{len(numbers)}Q", *numbers).hex("-", 8)
        first = self._last[:-12]
        made = (first + digits[4:].replace("-0000", f"\n{first}")).split("\n")
        self._last = made[-1]
        self._texts = None  # from there on
        return made

    def reseed(self) -> None:
        """Forget all that was drawn. Called in the child after a fork, so that both do not make equal ids."""
        self._lock = self._make_lock()  # the old one may be held by a thread that the child does not have
        self._counting = False
        self._ms = -1
        self._last = ""
        self._steps: Iterator[int] = iter(())
        self._texts: Iterator[str] | None = iter(())

    def _start(self, ms: int) -> JobId:
        """The first id of a millisecond. Who makes one now and then asks for no other in it, and finds
        nothing of this in the processor's caches, where each step takes ten times as long: so they are few.
        """
        bits = int.from_bytes(self._randbytes(_RANDOM_BYTES), "big")
        first, second = bits >> 62 & _FIRST_MASK, bits >> _LAST_BITS & _VARIANT_MASK | _VARIANT
        count = (bits & _LAST) >> self._shift  # is it full soon, the next ms follows
        self._ms, self._texts = ms, None
        self._last = self._whole % (ms >> 16, ms & 0xFFFF, first, second, count)
        return self._last

    def _counted(self) -> Iterator[str]:
        """The ids of this millisecond behind the last one. Nothing of it is Python code, so that one of many
        takes 0.5 µs; with a lock and a look at the clock it takes 1.2 µs.
        """
        form, count = self._last[:-12] + self._form, int(self._last[-12:], 16) >> self._shift
        self._texts = map(form.__mod__, accumulate(self._steps, initial=count))
        next(self._texts)  # that was the last one
        return self._texts

    def _next(self) -> str:
        """The next id when the steps are used up: a call of os.urandom for each takes longer than the id."""
        self._steps = map((1).__add__, memoryview(self._randbytes(2 * _STEPS)).cast("H"))
        return next(self._counted())


def _beginning(ms: int, random_bits: int) -> str:
    """All but the last 12 digits."""
    second = random_bits >> _LAST_BITS & _VARIANT_MASK | _VARIANT
    return _BEGINNING % (ms >> 16, ms & 0xFFFF, random_bits >> 62, second)


def _from_bytes(random_bits: bytes) -> int:
    if len(random_bits) != _RANDOM_BYTES:
        raise InvalidOption(f"random_bits must be {_RANDOM_BYTES} bytes, got {len(random_bits)}")
    return int.from_bytes(random_bits, "big") & _MAX_RANDOM
