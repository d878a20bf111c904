"""How the jobs of an app are shown: by the types of its tasks, and by what it masks."""

from windlass.client.app import Windlass
from windlass.core.showing import Shower


def shower_of(app: Windlass, task: str, *, secrets: bool = False) -> Shower:
    """Shows jobs of a task; with `secrets` it hides nothing."""
    return Shower(app.signature_of(task), app.config.private_patterns, secrets=secrets)
