"""What the settings of a topic do not promise, in sentences for operators."""

import time
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from windlass.bridges.kafka.admin import Admin, Topic
from windlass.errors import BridgeRefused

_DAY: Final = 86_400_000
_SOON: Final = 0.8
"""The share of the retention after which messages that were not taken are in danger."""


async def of_reading(admin: Admin, shown: str, name: str, group: str) -> Sequence[str]:
    """For who reads a topic."""
    topic = await admin.topic(name)
    try:
        settings = await admin.settings_of(name)
    except BridgeRefused:
        return (_unreadable(shown),)
    return (
        *_of_the_topic(shown, topic, settings),
        *_of_retention(shown, settings),
        *await _of_lag(admin, shown, name, topic, settings, group),
    )


async def of_publishing(admin: Admin, shown: str, name: str) -> Sequence[str]:
    """For who publishes to a topic."""
    topic = await admin.topic(name)
    try:
        settings = await admin.settings_of(name)
    except BridgeRefused:
        return (_unreadable(shown),)
    return tuple(_of_the_topic(shown, topic, settings))


def _unreadable(shown: str) -> str:
    return f"{shown}: its settings may not be read; allow DescribeConfigs on the topic"


def _of_the_topic(shown: str, topic: Topic, settings: Mapping[str, str]) -> Iterator[str]:
    in_sync = _number(settings, "min.insync.replicas", 1)
    if not int.from_bytes(_bits(topic.id)):
        yield (
            f"{shown}: its brokers give topics no ids, so one that is deleted and made anew is taken for "
            "the old one; use Kafka 3.1 or later"
        )
    if topic.replicas == 1:
        yield (
            f"{shown}: a partition has one replica, and its messages are lost with that broker; give "
            "the topic a replication factor of 3"
        )
    elif in_sync == 1:
        yield (
            f"{shown}: min.insync.replicas is 1, so a message counts as safe when one broker has it; set 2"
        )
    elif in_sync >= topic.replicas:
        yield (
            f"{shown}: min.insync.replicas is {in_sync} of {topic.replicas} replicas, so nothing can be "
            f"published while one broker is down; set {topic.replicas - 1}"
        )
    if settings.get("unclean.leader.election.enable") == "true":
        yield (
            f"{shown}: unclean.leader.election.enable lets a broker that lags behind become the leader, and "
            "messages that were acknowledged are gone then; set it to false"
        )


def _of_retention(shown: str, settings: Mapping[str, str]) -> Iterator[str]:
    if "compact" in settings.get("cleanup.policy", ""):
        yield (
            f"{shown}: cleanup.policy=compact drops all but the last message of a key, also before they are "
            "taken; use delete if each of them is a job"
        )
    retention = _number(settings, "retention.ms", -1)
    if 0 <= retention < _DAY and "delete" in settings.get("cleanup.policy", "delete"):
        yield (
            f"{shown}: retention.ms is {retention} ({retention / 3_600_000:.1f} hours): when the store is "
            "away for longer, messages are deleted before they are taken; set days"
        )


async def _of_lag(
    admin: Admin, shown: str, name: str, topic: Topic, settings: Mapping[str, str], group: str
) -> Sequence[str]:
    """What was taken is known here as it was told to monitors."""
    retention = _number(settings, "retention.ms", -1)
    if retention < 0:
        return ()
    old = int(time.time() * 1_000 - _SOON * retention)
    try:
        committed = await admin.committed(group, name, topic.partitions)
    except BridgeRefused:
        return ()
    young = await admin.first_since(name, committed, old)
    newest = await admin.newest(name, committed)
    late = [
        partition
        for partition, taken in committed.items()
        if taken < (newest[partition] if young[partition] < 0 else young[partition])
    ]
    if not late:
        return ()
    where = ", ".join(map(str, sorted(late)))
    why = f"older than {_SOON:.0%} of retention.ms, which deletes them soon"
    return [f"{shown}: messages of partition {where} were not taken and are {why}; take them faster"]


def _number(settings: Mapping[str, str], name: str, otherwise: int) -> int:
    text = settings.get(name, "")
    return int(text) if text.lstrip("-").isdecimal() else otherwise


def _bits(topic_id: str) -> bytes:
    """The bytes of an id as Kafka writes it; all are zero where there is none."""
    return b64decode(topic_id + "==")
