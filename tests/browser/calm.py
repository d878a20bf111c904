"""An application in which nothing happens by itself."""

from windlass import Windlass

app = Windlass(name="calm")
app.queue("mail", emit="all")


@app.task(queue="mail")
def send(to: str) -> str:
    """Send a mail."""
    return to
