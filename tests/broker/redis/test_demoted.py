"""A server that is a primary no longer is left, however it says so."""

import pytest
from redis import exceptions

from windlass.broker.redis.complaints import is_no_primary

WRAPPED = (
    "Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): @user_script:14: "
    "@user_script: 14: -READONLY You can't write against a read only replica."
)


@pytest.mark.parametrize(
    ("error", "demoted"),
    [
        (exceptions.ReadOnlyError("You can't write against a read only replica."), True),
        (exceptions.MasterDownError("Link with MASTER is down"), True),
        (exceptions.ResponseError(WRAPPED), True),
        (exceptions.ResponseError("ERR value is not an integer"), False),
        (exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'"), False),
    ],
)
def test_a_demoted_server_is_known_by_its_words(error: exceptions.RedisError, demoted: bool) -> None:
    assert is_no_primary(error) is demoted
