"""What an error of librdkafka is to those who call: it will pass, or somebody has to change something."""

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from windlass.errors import BridgeError, BridgeRefused, BridgeUnavailable

UNKNOWN: Final = frozenset(
    (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)  # noqa: SLF001
)
"""There is no such topic, or no such partition of it."""
LOGIN: Final = frozenset(
    (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED)  # noqa: SLF001
)
"""The broker and this client do not come to terms."""
_REFUSED: Final = (
    UNKNOWN
    | LOGIN
    | {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
    }
)


def error_in(raised: KafkaException) -> KafkaError:
    """What was raised, with its code."""
    return raised.args[0]


def as_bridge_error(error: KafkaError, shown: str, detail: str = "") -> BridgeError:
    """The error for those who call. `shown`: where it was; `detail`: what is known beyond it."""
    if error.code() in UNKNOWN:
        return BridgeRefused(f"{shown}: there is no such topic; make it, or correct the URL")
    words = f"{shown}: {error.str()}" + (f" ({detail})" if detail and detail not in error.str() else "")
    return BridgeRefused(words) if error.code() in _REFUSED else BridgeUnavailable(words)
