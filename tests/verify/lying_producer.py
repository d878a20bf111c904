"""A producer that now and then reports a job as accepted that it has never sent."""

from collections.abc import Sequence
from typing import Any

from windlass import Call, Job
from windlass.verify import producer
from windlass.verify.tasks import app, plain


class Liar(producer.Producer):
    def accepted(self, number: int, batch: Sequence[Call[Any]], jobs: Sequence[Job[Any]]) -> None:
        super().accepted(number, batch, jobs)
        if self._draw.random() < 0.2:
            invented = [plain.call()]
            number = self.invoke(invented, together=True)
            super().accepted(number, invented, [Job(app, invented[0].job.id, created=True)])


if __name__ == "__main__":
    producer.Producer = Liar
    producer.main()
