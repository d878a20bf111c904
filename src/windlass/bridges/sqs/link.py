"""The connection to SQS, and what goes wrong on it in our words."""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeVar

from windlass.bridges.addresses import Address
from windlass.errors import BridgeError, BridgeRefused, BridgeUnavailable, InvalidOption
from windlass.forks import CONNECTING
from windlass.patience import cancelled, finished

_session: Any = import_module("aiobotocore.session")  # without types
_config: Any = import_module("aiobotocore.config")
_errors: Any = import_module("botocore.exceptions")
_ClientError: type[Exception] = _errors.ClientError
_BotoCoreError: type[Exception] = _errors.BotoCoreError
_NO_LOGIN: tuple[type[Exception], ...] = (_errors.NoCredentialsError, _errors.PartialCredentialsError)
_T = TypeVar("_T")
_loader: Any = _session.get_session().get_component("data_loader")
"""What it has read of SQS from its files; to read it again for each client takes four times as long."""

LINK_OPTIONS: Final = ("endpoint", "account")
PARALLEL: Final = 10
"""Calls that one reader, or one who publishes, has under way."""
_CONNECTS_WITHIN: Final = 3
_ANSWERS_WITHIN: Final = 10
"""Seconds without a byte. A receive says by itself that there is nothing before that."""
_TRIES: Final = 2
"""Of each call by the client itself; who runs a bridge tries again as well, and tells operators."""
_MISSING: Final = ("QueueDoesNotExist", "NonExistentQueue")
_PASSING: Final = (
    "ExpiredToken",
    "InternalError",
    "InternalFailure",
    "KmsThrottled",
    "OverLimit",
    "PriorRequestNotComplete",
    "RequestExpired",
    "RequestThrottled",
    "ServiceUnavailable",
    "Throttling",
)
_SERVER_ERRORS: Final = 500
_TOO_MANY: Final = 429


class Link:
    """A client, and the URLs of queues."""

    def __init__(self, address: Address) -> None:
        """`InvalidOption`: it names no region."""
        if len(address.hosts) != 1 or not address.hosts[0][0]:
            raise InvalidOption(f"{address.shown} names no region: sqs://eu-central-1/queue")
        if address.user is not None and address.password is None:
            raise InvalidOption(f"{address.shown}: a key has a secret: sqs://KEY:SECRET@region/queue")
        self.shown = address.shown
        self._settings: dict[str, Any] = {
            "region_name": address.hosts[0][0],
            "endpoint_url": address.options.get("endpoint"),
            "aws_access_key_id": address.user,
            "aws_secret_access_key": address.password,
        }
        self._account = address.options.get("account")
        self._client: Any = None
        self._open = contextlib.AsyncExitStack()

    async def call(self, verb: str, **parameters: Any) -> Mapping[str, Any]:
        """One call: `receive_message`. The first one makes the client, and connects."""
        if self._client is not None:
            return await self._called(verb, parameters)
        async with CONNECTING.entered():
            return await self._called(verb, parameters)

    async def _called(self, verb: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return await getattr(await self._connected(), verb)(**parameters)
        except _ClientError as error:
            raise self._refusal(error) from None
        except _NO_LOGIN:
            raise BridgeRefused(
                f"{self.shown}: there is no key to log in with: set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, use a role, or write sqs://KEY:SECRET@region/queue"
            ) from None
        except (_BotoCoreError, OSError, TimeoutError) as error:
            raise BridgeUnavailable(f"{self.shown} does not answer: {_said(error)}") from None

    async def url_of(self, queue: str) -> str:
        """The URL of a queue. `BridgeRefused`: there is none of that name."""
        owner = {} if self._account is None else {"QueueOwnerAWSAccountId": self._account}
        try:
            return (await self.call("get_queue_url", QueueName=queue, **owner))["QueueUrl"]
        except MissingQueue:
            raise BridgeRefused(f'{self.shown}: there is no queue "{queue}"') from None

    async def attributes(self, url: str) -> Mapping[str, str]:
        """How a queue is set up, and how many messages it has; nothing if we may not know."""
        try:
            told = await self.call("get_queue_attributes", QueueUrl=url, AttributeNames=["All"])
        except MissingQueue:
            raise
        except BridgeRefused:
            return {}
        return told.get("Attributes", {})

    async def close(self) -> None:
        """Let go of it."""
        with contextlib.suppress(Exception):
            await self._open.aclose()
        self._client = None

    async def _connected(self) -> Any:
        if self._client is None:
            config = _config.AioConfig(
                connect_timeout=_CONNECTS_WITHIN,
                read_timeout=_ANSWERS_WITHIN,
                retries={"total_max_attempts": _TRIES, "mode": "standard"},
                max_pool_connections=4 * PARALLEL,
            )
            session = _session.get_session()
            session.register_component("data_loader", _loader)
            try:
                making: Any = session.create_client("sqs", config=config, **self._settings)
                self._client = await self._open.enter_async_context(making)
            except (_errors.NoRegionError, ValueError) as error:
                raise InvalidOption(f"{self.shown}: {error}") from None
        return self._client

    def _refusal(self, error: Any) -> BridgeError:
        said: Mapping[str, Any] = error.response
        code: str = said.get("Error", {}).get("Code", "")
        status: int = said.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        text = f"{self.shown}: {code}: {said.get('Error', {}).get('Message', '')}"
        if any(code.endswith(missing) for missing in _MISSING):
            return MissingQueue(text)
        if status >= _SERVER_ERRORS or status == _TOO_MANY or any(name in code for name in _PASSING):
            return BridgeUnavailable(text)
        return BridgeRefused(text)


class MissingQueue(BridgeRefused):
    """There is no such queue."""


async def all_of(calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Make calls side by side and wait for all, also if one has an error, which is raised then."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        await finished(tasks)
    except BaseException:
        await cancelled(tasks)
        raise
    errors = [error for task in tasks if (error := task.exception()) is not None]
    if errors:
        raise errors[0]
    return [task.result() for task in tasks]


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
