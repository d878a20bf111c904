"""Whether the settings of an app let others be told: of alerts, and of jobs that bring a URL of their own."""

from windlass.config import Config
from windlass.core.address import allowed
from windlass.core.webhook import check_reachable, check_target
from windlass.errors import InvalidOption


def check_webhooks(config: Config, what: str) -> None:
    """Refuse what needs webhooks where there are none."""
    if not config.webhooks:
        raise InvalidOption(f"{what} needs webhooks: Windlass(webhooks=True), or WINDLASS_WEBHOOKS=true")


def check_callback(config: Config, url: str) -> None:
    """Refuse a URL that workers under these settings would not tell of the end of a job."""
    check_webhooks(config, "callback=")
    check_reachable(check_target(url, name="callback"), allowed(config.webhook_allow))
