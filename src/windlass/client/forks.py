"""What must not outlive a fork: ids that were drawn, locks that another thread held, threads, connections."""

import os
import weakref
from typing import Protocol


class Renewed(Protocol):
    """Something that starts anew in the child of a fork."""

    def renew(self) -> None:
        """Forget, in the child, what belongs to the parent. No other thread runs yet."""
        ...


# One hook for all: a hook cannot be taken back, and apps come and go.
_known: weakref.WeakSet[Renewed] = weakref.WeakSet()


def renew_after_fork(one: Renewed) -> None:
    """Call its `renew` in every child, as long as it lives."""
    _known.add(one)


def _renew_all() -> None:
    for one in list(_known):
        one.renew()


os.register_at_fork(after_in_child=_renew_all)
