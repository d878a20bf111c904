"""A data pipeline as a flow: read many files side by side, sum each, join what they say, write one table.

    cd examples/pipeline
    python pipeline.py make data 8           # eight files of sales
    windlass worker pipeline:app &           # or as many as you like, on as many machines as see the folder
    python pipeline.py run data table.csv    # prints how far it is, then the table

A file that cannot be read ends as a dead letter, and the flow says that it is stuck. Correct the file, and
`windlass flows pipeline:app replay NAME` goes on where it stopped: what is done is not done again.
"""

import csv
import random
import sys
import time
from collections import Counter
from pathlib import Path

from windlass import RetryPolicy, Windlass, chain, current, group

app = Windlass()  # $WINDLASS_URL, else sqlite:///windlass.db
app.queue("pipeline", concurrency=8)


@app.task(queue="pipeline", retry=RetryPolicy(max_attempts=3, base=0.1))
def total(file: str) -> dict[str, int]:
    """What each product has sold, of one file."""
    sums: Counter[str] = Counter()
    with Path(file).open(newline="") as rows:
        for row in csv.DictReader(rows):
            sums[row["product"]] += int(row["count"])
    return dict(sums)


@app.task(queue="pipeline")
def join() -> dict[str, int]:
    """What the jobs say together that this one waited for."""
    sums: Counter[str] = Counter()
    for part in current.results():
        sums.update(part)
    return dict(sums)


@app.task(queue="pipeline")
def write(to: str) -> int:
    """Write the table: beside it first, so that nobody reads half of one, also if this runs twice."""
    [sums] = current.results()
    beside = Path(f"{to}.{current.job.id}.part")
    with beside.open("w", newline="") as table:
        rows = csv.writer(table)
        rows.writerow(("product", "count"))
        rows.writerows(sorted(sums.items()))
    beside.replace(to)
    return len(sums)


def make(folder: str, count: str) -> None:
    """Write files to try it with."""
    Path(folder).mkdir(exist_ok=True)
    draw = random.Random(1)
    for number in range(int(count)):
        with (Path(folder) / f"{number:03}.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("product", "count"))
            rows.writerows((draw.choice(("tea", "rice", "salt")), draw.randint(1, 9)) for _ in range(1_000))


def run(folder: str, to: str) -> None:
    """Send the flow, and wait for it."""
    files = sorted(str(file.resolve()) for file in Path(folder).glob("*.csv"))
    if not files:
        raise SystemExit(f"there are no .csv files in {folder}")
    target = str(Path(to).resolve())
    flow = chain(group(total.call(file) for file in files), join.call(), write.call(target)).enqueue()
    print(f"flow {flow.id}: {len(files)} files")
    while (state := flow.state()) == "running":
        print(dict(flow.view().counts))
        time.sleep(0.5)
    if state != "done":
        raise SystemExit(f"the flow is {state}: windlass flows pipeline:app show {flow.id}")
    print(Path(to).read_text(), end="")


if __name__ == "__main__":
    {"make": make, "run": run}[sys.argv[1]](*sys.argv[2:])
