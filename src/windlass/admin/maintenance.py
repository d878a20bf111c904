"""What a server does for its namespace besides answering: the maintenance that workers do as well.

Each function runs until it is cancelled.
"""

from windlass.client.app import Windlass
from windlass.observe.history.reader import keep_history as copy_events
from windlass.pace import MachinePace
from windlass.worker.alerting import look_and_tell
from windlass.worker.firing import Firing
from windlass.worker.janitor import Janitor
from windlass.worker.pruning import Pruning


async def sweep(app: Windlass) -> None:
    """Sweep the namespace in turn with its workers, fire schedules that are due, and judge alerts."""
    broker = await app.broker()
    pace = MachinePace()
    janitor = Janitor(
        broker,
        pace,
        app.config,
        fire=Firing(broker, app.new_id).due,
        look=lambda: look_and_tell(broker, namespace=app.config.namespace),
        pruning=Pruning(broker, app, pace),
    )
    await janitor.run()


async def keep_history(app: Windlass) -> None:
    """Copy finished attempts from the log of events to the place where the app keeps history, if it has
    one.
    """
    config = app.config
    if config.history is not None:
        await copy_events(
            config.history, await app.broker(), config.namespace, patterns=config.private_patterns
        )
