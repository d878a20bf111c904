"""The descriptors that a worker process needs, and whether a task has closed one of them.

A loop whose selector was closed waits for ever, and says nothing. A number that was closed and given to
another file is worse: what is meant for the store would be written there. So the numbers are looked at before
each exchange with the store, and once a second: each must be open, and still be the same file.
"""

import asyncio
import resource
import select
import selectors

from windlass.descriptors import identity


class Lifelines:
    """What must stay open. A look takes a few microseconds."""

    def __init__(self) -> None:
        self._held: list[tuple[str, int, bytes]] = []
        self._pairs = select.poll()

    def hold(self, what: str, descriptor: int) -> None:
        """From here on this must stay open; `what` names it in the log."""
        self._held.append((what, descriptor, identity(descriptor)))

    def new_loop(self, what: str) -> asyncio.AbstractEventLoop:
        """A loop that must stay whole. One of another kind, which a program has chosen, is left to itself:
        uvloop ends the process when its selector is gone.
        """
        loop = asyncio.new_event_loop()
        if type(loop) is asyncio.SelectorEventLoop:
            loop.close()
            selector = selectors.DefaultSelector()
            loop = asyncio.SelectorEventLoop(selector)
            number = getattr(selector, "fileno", None)  # of epoll and kqueue; others have none
            if number is not None:
                self.hold(f"the selector of {what}", number())
            # All that a new loop looks at is the pair of sockets by which other threads wake it.
            for key in selector.get_map().values():
                self.hold(f"the wake-up of {what}", key.fd)
                self._pairs.register(key.fd, 0)
        asyncio.set_event_loop(loop)
        return loop

    def broken(self) -> str | None:
        """What was closed, or is another file now; None: all is well."""
        for what, descriptor, file in self._held:
            found = identity(descriptor)
            if found != file:
                again = ", and its number is another file's now" if found else ""
                return f"{what} (descriptor {descriptor}) was closed{again}"
        highest = max((descriptor for _, descriptor, _ in self._held), default=0)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if 0 <= limit <= highest:
            return f"the limit of open files was lowered to {limit}, below what is open"
        if any(event & select.POLLHUP for _, event in self._pairs.poll(0)):
            return "the wake-up of a loop was closed at its other end"
        return None
