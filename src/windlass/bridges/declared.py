"""Intakes and relays as a program declares them, with what the store must not keep: how to log in."""

import msgspec

from windlass.bridges.addresses import Address
from windlass.core.intake import IntakeSettings
from windlass.core.relay import RelaySettings


class Intake(msgspec.Struct, frozen=True):
    """Where messages are read from, and how they become jobs."""

    settings: IntakeSettings
    address: Address


class Relay(msgspec.Struct, frozen=True):
    """Where the ends of jobs are told, and which."""

    settings: RelaySettings
    address: Address
