"""Every kind of fault, and which of them are possible in a scene."""

from collections.abc import Sequence

from windlass.errors import InvalidOption
from windlass.verify.faults.cluster import CLUSTER
from windlass.verify.faults.file import FILE
from windlass.verify.faults.front import FRONT
from windlass.verify.faults.http import HTTP
from windlass.verify.faults.kind import Kind
from windlass.verify.faults.network import NETWORK
from windlass.verify.faults.postgres import POSTGRES
from windlass.verify.faults.producers import PRODUCERS
from windlass.verify.faults.redis import REDIS
from windlass.verify.faults.store import STORE
from windlass.verify.faults.workers import WORKERS
from windlass.verify.scene import Scene

KINDS: tuple[Kind, ...] = (
    *WORKERS,
    *PRODUCERS,
    *HTTP,
    *NETWORK,
    *STORE,
    *FRONT,
    *FILE,
    *REDIS,
    *POSTGRES,
    *CLUSTER,
)


def named(names: Sequence[str]) -> list[Kind]:
    """The kinds that are wanted: the usual ones, unless they are named."""
    known = {kind.name: kind for kind in KINDS}
    for name in names:
        if name not in known:
            raise InvalidOption(f'there is no fault "{name}"; faults are: {", ".join(known)}')
    return [known[name] for name in names] if names else [kind for kind in KINDS if kind.usual]


def possible(scene: Scene, names: Sequence[str] = ()) -> tuple[list[Kind], dict[str, str]]:
    """The kinds that are wanted and can be injected here; the others by name, with why not."""
    wanted = named(names)
    reasons = {kind.name: kind.why_not(scene) for kind in wanted}
    if not names:
        reasons |= {kind.name: _UNUSUAL for kind in KINDS if not kind.usual}
    return (
        [kind for kind in wanted if reasons[kind.name] is None],
        {name: why for name, why in reasons.items() if why is not None and not why.startswith(OTHERS)},
    )


OTHERS = "for "
"""How the reason of a kind begins that belongs to another store: nobody misses it."""
_UNUSUAL = "takes back what was accepted: a run of its own, by --faults"
