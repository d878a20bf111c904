"""An app for real workers; where it keeps what, the environment says."""

import os

from windlass import Windlass

app = Windlass(values_over=1_000)


@app.task(name="echo_in_thread")
def echo_in_thread(text: str) -> str:
    return text


@app.task(name="echo_in_loop")
async def echo_in_loop(text: str) -> str:
    return text


@app.task(name="echo_in_process", run="process")
def echo_in_process(text: str) -> str:
    return f"{os.getpid()} {text}"
