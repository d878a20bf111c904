"""Bringing the store of an app up to date: where it stands, what would run, running it."""

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from windlass.config import Config
from windlass.core.names import check_namespace
from windlass.errors import InvalidOption

if TYPE_CHECKING:
    from windlass.broker.postgres.migrating import LayoutState

POSTGRES = frozenset({"postgres", "postgresql"})


class Migration:
    """The store of an app, by its URL and namespace. It is not opened: that would bring it up to date."""

    def __init__(self, config: Config, *, url: str | None = None, namespace: str | None = None) -> None:
        self._url = url or config.url
        self.namespace = config.namespace if namespace is None else check_namespace(namespace)
        scheme = urlsplit(self._url).scheme
        if url is not None and scheme not in POSTGRES:
            raise InvalidOption(f'--url must start with "postgresql:", not with "{scheme}:"')
        self.is_needed = scheme in POSTGRES
        """Other stores have nothing to migrate: what they need is made when they are opened."""
        self.store = scheme

    async def layout_state(self) -> "LayoutState":
        """Where the namespace stands beside this program."""
        from windlass.broker.postgres import migrating  # noqa: PLC0415 - stores are imported by those who use them

        return await migrating.layout_state(self._url, self.namespace)

    async def sql(self) -> str:
        """All that would run; nothing if it is up to date."""
        from windlass.broker.postgres import migrating  # noqa: PLC0415 - likewise

        return migrating.sql(await migrating.layout_state(self._url, self.namespace))

    async def run(self) -> "LayoutState":
        """Bring it up to date; where it stood before."""
        from windlass.broker.postgres import migrating  # noqa: PLC0415 - likewise

        return await migrating.migrate(self._url, self.namespace)
