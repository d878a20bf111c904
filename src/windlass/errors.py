"""Every error that Windlass raises, in one tree.

    WindlassError
    ├── InvalidOption (ValueError)      an option or name that Windlass cannot use
    ├── InvalidPayload (ValueError)     arguments or a result that Windlass cannot store
    │   └── PayloadTooLarge
    ├── UnreadablePayload               this code cannot decode bytes from the store
    ├── EnqueueRefused                  the store accepted neither the job nor its group
    ├── ResultError                     a result cannot be returned
    │   ├── ResultTimeout (TimeoutError)    the job has not finished yet
    │   ├── JobFailed                   it is dead; the message is its last error
    │   ├── JobCancelled                it was cancelled
    │   ├── JobNotFound                 the store has no record of such a job
    │   ├── JobLost                     the store accepted the job and has lost it
    │   └── ResultExpired               it is done; its result is no longer kept
    ├── LifespanFailed                  the lifespan of an app failed at its start or ended too early
    ├── LeaseLost                       a running job has lost its lease; its reports are refused
    ├── BridgeError                     a message broker (Kafka, RabbitMQ …) cannot do the operation
    │   ├── BridgeUnavailable           it did not answer in time
    │   ├── BridgeRefused               it refused the operation; a retry does not help
    │   └── SourceReplaced              the log of an intake was replaced or truncated
    ├── ValuesError                     object storage for large values cannot do the operation
    │   ├── ValuesUnavailable           it did not answer in time, or refused the login
    │   ├── ValueMissing                it has no such object
    │   └── ValueConflict               it has another object of this name
    ├── ContractError                   a call breaks the contract of a store: a bug in the caller
    └── StoreError                      the store cannot do the operation
        ├── StoreUnavailable            it did not answer in time
        ├── DescriptorClosed            this program has closed a file of the store: restart it
        ├── StoreReplaced               its file was deleted or replaced: restart this process
        └── Unsupported                 it lacks a declared capability

A message says what was wrong, with which value, and what to do. It never carries a payload.

`BlockingCall` (RuntimeWarning) is a warning, not an error.
"""


class WindlassError(Exception):
    """Base of all errors of Windlass."""


class InvalidOption(WindlassError, ValueError):
    """An option or a name that cannot be used."""


class InvalidPayload(WindlassError, ValueError):
    """Arguments or a result that Windlass cannot store; the message names the parameter."""


class PayloadTooLarge(InvalidPayload):
    """Arguments or a result are larger than the limit; the message has the limit and the size."""


class UnreadablePayload(WindlassError):
    """The bytes of a payload cannot be decoded by this code. The job is held, never dropped."""


class ContractError(WindlassError):
    """A broker was called in a way that its contract forbids: a bug in the caller, never a user's mistake."""


class BridgeError(WindlassError):
    """A message broker cannot do the operation."""


class BridgeUnavailable(BridgeError):
    """The message broker did not answer, or not in time."""


class BridgeRefused(BridgeError):
    """The message broker refused the operation. If it refused messages, `numbers` are their positions in the
    batch.
    """

    def __init__(self, text: str, numbers: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.numbers = numbers


class SourceReplaced(BridgeError):
    """The log that an intake reads was replaced, or no longer has the next messages. An operator must choose
    where the intake continues.
    """


class ValuesError(WindlassError):
    """Object storage, which keeps large payloads and results, cannot do the operation. Errors of the store
    itself are a `StoreError`.
    """


class ValuesUnavailable(ValuesError):
    """Object storage did not answer in time, or refused the login."""


class ValueMissing(ValuesError):
    """Object storage does not have the object: somebody has removed it, or this process uses another bucket
    or folder.
    """


class ValueConflict(ValuesError):
    """Object storage already has another object under this name, and Windlass replaces no objects. A retry
    does not help: the object belongs to another or an earlier store, or somebody else wrote it.
    """

    def __init__(self, message: str, job: str) -> None:
        super().__init__(message)
        self.job = job
        """Whose payload or result it is."""


class StoreError(WindlassError):
    """The store cannot do the operation."""


class StoreUnavailable(StoreError):
    """The store did not answer, or not in time."""


class DescriptorClosed(StoreError):
    """The program has closed a file that the store uses. Windlass writes nothing more, because the file
    descriptor may belong to another file now. Restart the program.
    """


class StoreReplaced(StoreError):
    """The file of the store was deleted, replaced or overwritten while this process had it open.

    This process cannot use the file that it has open, because no other process reads it. It does not switch
    to another file by itself. Restart it.
    """


class Unsupported(StoreError):
    """The store lacks a capability; the message names it."""


class EnqueueRefused(WindlassError):
    """The store did not accept a job. It accepted no job of the same group."""


class LifespanFailed(WindlassError):
    """The lifespan of an app cannot be entered, or has ended before its process. Its `__cause__` is the
    error of the lifespan.
    """


class LeaseLost(WindlassError):
    """A running job no longer holds its lease. Its reports are refused, and another run may be under way."""


class ResultError(WindlassError):
    """The result of a job cannot be returned."""


class ResultTimeout(ResultError, TimeoutError):
    """The job has not finished yet."""


class JobFailed(ResultError):
    """The job is dead. The message is the message of its last error."""


class JobCancelled(ResultError):
    """The job was cancelled."""


class JobNotFound(ResultError):
    """The store has no record of such a job: it finished long ago, never existed, or was lost."""


class JobLost(ResultError):
    """The store accepted the job but has no record of it. It should have one, so it has lost data."""


class ResultExpired(ResultError):
    """The job is done, but the store no longer keeps its result."""


class BlockingCall(RuntimeWarning):
    """A blocking call was made inside a running event loop: everything on that loop waits for the store."""
