"""Putting down in the audit what a command has done that does not do it in the ledger itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from acklast.cli.lane_target import operations_of
from acklast.cli.output import safe
from acklast.config import Config
from acklast.errors import AcklastError
from acklast.ledger.audit import put_down
from acklast.ledger.operate import Operator


async def audited(config: Config, operator: Operator, action: str, effect: Mapping[str, Any]) -> None:
    """Add an entry, in a commit of its own.

    Raises:
        ConfigError, SchemaError: the ledger must not be used like this.
        LedgerUnavailable: it does not answer.
    """
    async with operations_of(config) as operations, operations.changing() as connection:
        await put_down(connection, operator, action, effect)


async def audited_if_there(
    config: Config, operator: Operator, action: str, effect: Mapping[str, Any]
) -> None:
    """The same for what is done already, and must not fail for want of a ledger: that is said."""
    try:
        await audited(config, operator, action, effect)
    except AcklastError as error:
        sys.stderr.write(f"warning: the audit has no entry of this: {safe(error.what)}\n")
