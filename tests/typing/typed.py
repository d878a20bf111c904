"""Read by the type checker, never run: what the types of the public face promise."""

from collections.abc import Coroutine
from typing import Any, assert_type

from windlass import Call, Job, Rate, Windlass

app = Windlass("memory://")


@app.task
def add(left: int, right: int = 0) -> int:
    return left + right


@app.task(queue="mail", timeout=60)
async def send(to: str, *, subject: str) -> str:
    return to + subject


assert_type(add(1), int)
plain = send("a", subject="b")
_ = assert_type(plain, Coroutine[Any, Any, str])
assert_type(add.enqueue(1, right=2), Job[int])
assert_type(add.enqueue(1).result(timeout=1), int)
assert_type(send.enqueue("a", subject="b").result(), str)
assert_type(add.using(delay="5m", priority=3).enqueue(1).result(), int)
assert_type(add.call(1), Call[int])
assert_type(add.call(1).using(lane="x"), Call[int])
assert_type(app.enqueue_many([add.call(1)]), list[Job[int]])
assert_type(app.enqueue_many([add.call(1), send.call("a", subject="b")]), list[Job[int | str]])
assert_type(add.using(lane="x").enqueue_many([add.call(1)]), list[Job[int]])
assert_type(add.handle("id"), Job[int])
assert_type(app.external("resize", queue="images").enqueue(1, width=2), Job[Any])
app.schedule("nightly", add.call(1), cron="0 3 * * *", tz="Europe/Paris", overlap="skip")
app.queue("mail", concurrency=5, rate="100/s", lane_rate=Rate(5), bands={10: 80, 0: 20})


class Sums:
    @app.task
    @staticmethod
    def static(number: int) -> int:
        return number


assert_type(Sums.static.enqueue(1).result("10s"), int)


async def main() -> None:
    assert_type(await send.aenqueue("a", subject="b"), Job[str])
    assert_type(await (await add.using(lane="x").aenqueue(1)).aresult(), int)
    assert_type(await app.aenqueue_many([send.call("a", subject="b")]), list[Job[str]])


add.enqueue("1")  # wrong: str for int
add.enqueue()  # wrong: left is missing
add.enqueue(1, middle=2)  # wrong: no such parameter
send.call("a")  # wrong: subject is missing
add.using(delai=5)  # wrong: no such option
add.using(mode="debounce")  # wrong: no such mode
app.task(queu="mail")  # wrong: no such option
app.task(retry=3)  # wrong: not a policy
app.queue("mail", order="fifo")  # wrong: no such order
app.external("resize", colour="red")  # wrong: no such option
app.schedule("nightly", add, every=5)  # wrong: a task is no call
app.schedule("nightly", add.call(1), overlap="no")  # wrong: no such policy
add.using(lane="x").enqueue("1")  # wrong: str for int
Windlass(beats=5)  # wrong: no such setting
