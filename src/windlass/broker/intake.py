"""The part of the contract that intakes call: those who take jobs from a log that others write.

What `windlass.broker.contract` says of every verb holds here too.
"""

from collections.abc import Sequence
from typing import Protocol

from windlass.core.take import Offset, Take, Taken


class Intake(Protocol):
    """Offsets of sources, which move together with the jobs that come of them."""

    async def take(self, take: Take) -> Taken:
        """Move an offset and enqueue the jobs of what lies between, in one step.

        All groups count as one, which comes into being whole or not at all, as `enqueue` accepts it. A job
        named in `dead` becomes a dead letter at once, by the move `enqueue`.

        - take_moves_and_enqueues_together: the jobs are as enqueue makes them, and wake those who wait;
          receipts have the shape of the groups. Jobs that a key absorbs, and ids that are known, count as
          taken.
        - offset_moves_once: of any number of equal takes one is TAKEN, and the others are RACED and make no
          job. They are told where the offset is now.
        - refused_take_keeps_its_offset: one refused job refuses all groups, and nothing of them exists; a
          full store refuses.
        - foreign_offset_is_refused: FOREIGN while the offset is of another identity, whatever else the take
          says; nothing moves.
        - take_is_bounded: more jobs, bytes or edges in all groups together than a group may have are a
          `ContractError`, before anything happens; so is an id in `dead` that is in no group.
        - take_without_jobs_moves_the_offset: and `then` None forgets it: what operators do. A full store
          takes it.
        - born_dead_is_kept_whole: with payload, headers, tags and its error; `arrived unfit to run`. It has
          no key, no parents and no time of its own, and is counted, listed, told in events, edited, replayed,
          discarded and pruned as any dead letter.
        """
        ...

    async def offsets(self, after: str = "", limit: int = 100) -> Sequence[Offset]:
        """Offsets by the names of their sources, from behind the name given.

        - offset_is_readable: each with its identity and when it moved, page by page; a take is seen at once.
        """
        ...
