"""An app that moves money between accounts, each transfer in the transaction that ends its job."""

import asyncio

from windlass import RetryPolicy, Windlass, current

ACCOUNTS = 20
TABLES = """
CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL);
INSERT INTO account SELECT id, 1000 FROM generate_series(0, {accounts} - 1) id;
-- No key: a transfer that is applied twice is seen, not prevented.
CREATE TABLE applied (transfer int NOT NULL, fence bigint NOT NULL);
"""


def build(url: str) -> Windlass:
    """The app on a store."""
    app = Windlass(url)

    @app.task(retry=RetryPolicy(max_attempts=1_000, base=0.05, cap=0.5))
    async def transfer(number: int, source: int, target: int, amount: int) -> None:
        async with current.transaction() as connection:
            await connection.execute(
                "INSERT INTO applied (transfer, fence) VALUES (%s, %s)", [number, current.fence]
            )
            changes = sorted([(source, -amount), (target, amount)])  # in one order: no deadlocks
            for account, change in changes:
                await connection.execute(
                    "UPDATE account SET balance = balance + %s WHERE id = %s", [change, account]
                )
            await asyncio.sleep(0.002)  # so that some are killed and stopped in here

    return app


def __getattr__(name: str) -> Windlass:
    if name == "app":  # for workers: of the environment
        import os  # noqa: PLC0415

        return build(os.environ["WINDLASS_URL"])
    raise AttributeError(name)
