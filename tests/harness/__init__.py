"""What tests share: the servers' fixtures stand on it, and it never imports a test."""

from __future__ import annotations

from harness.broker import Broker
from harness.databases import Databases
from harness.waiting import eventually, until

__all__ = ["Broker", "Databases", "eventually", "until"]
