"""What can go wrong, each error with its remedy, and the exit code that the command ends with.

Two families: the errors that stop a command (``AcklastError``), and the exceptions that a handler raises
to say what its attempt came to (``JobError``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """Exit codes of every ``acklast`` command. 64 to 78 follow sysexits.h."""

    OK = 0
    CUT = 1
    """A drain had to cut work at its deadline; every job was recorded or goes back to the broker."""
    INCOMPLETE = 2
    """A command did its work for some items only; its output names the others."""
    NOT_FOUND = 3
    """Nothing in the ledger by that name."""
    UNFIT = 4
    """``acklast check`` or ``runs show`` found something that must be put right."""
    CANCELLED = 5
    """``runs watch``: the run was cancelled."""
    TIMED_OUT = 6
    """``runs watch``: the run was not finished within ``--timeout``."""
    AT_RISK = 7
    """``forecast``: a run's deadline lies inside the band of its forecast, or nobody can tell."""
    LATE = 8
    """``forecast``: a run is expected to miss its deadline, or has missed it."""
    USAGE = 64
    """The command line is wrong."""
    DATA = 65
    """An input file cannot be read as what it claims to be."""
    UNAVAILABLE = 69
    """The broker or the ledger cannot be reached, or an address is in use. Worth a restart."""
    SOFTWARE = 70
    """A defect in acklast or in a handler module. Please report it with the log."""
    OUTPUT = 74
    """Standard output cannot be written: the disk behind it is full, or it is closed."""
    CONFIG = 78
    """The configuration, the topology or the schema does not fit. A restart does not help."""


NO_RESTART: Final = frozenset({Exit.USAGE, Exit.DATA, Exit.CONFIG})
"""What the units list in RestartPreventExitStatus: the next start would end like this one."""


class AcklastError(Exception):
    """An error with its remedy.

    ``what`` says what is wrong, ``remedy`` what to do about it.
    """

    exit: Exit = Exit.SOFTWARE

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. {remedy}")
        self.what = what
        self.remedy = remedy


class ConfigError(AcklastError):
    """The configuration cannot be used."""

    exit = Exit.CONFIG


class SchemaError(AcklastError):
    """The ledger's schema is older or newer than this program."""

    exit = Exit.CONFIG


class TopologyError(AcklastError):
    """The broker's objects differ from the plan."""

    exit = Exit.CONFIG


class AlreadyChanging(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """Another command replaces or removes queues of the same namespace."""

    exit = Exit.INCOMPLETE

    def __init__(self) -> None:
        super().__init__(
            "another command changes the topology of this namespace now",
            "Wait until it has ended, then try again",
        )


class InstanceLocked(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """Another daemon holds this instance's state directory."""

    exit = Exit.CONFIG


class BrokerUnavailable(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """No broker of the list answers."""

    exit = Exit.UNAVAILABLE


class BrokerRefused(BrokerUnavailable):
    """Every broker of the list answers, and refuses the login or the certificate."""

    exit = Exit.CONFIG


class LedgerUnavailable(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """Postgres does not answer, or lost the connection while it was answering."""

    exit = Exit.UNAVAILABLE


class SessionLost(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """This worker session's lease has ended: it may start nothing more."""

    exit = Exit.UNAVAILABLE


class ClaimLost(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """The claim's fence is no longer the job's: somebody else owns it now."""


class JobError(Exception):
    """What a handler raises to say what its attempt came to.

    ``reason`` is a short code, safe to log and to group by; never a provider's raw response.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RateLimited(JobError):  # noqa: N818 - the field's word
    """The downstream refused for its quota. Spends no attempt; pauses the budget.

    ``retry_after`` is what the downstream asked for: seconds, or the text of a Retry-After header
    (delay seconds or an HTTP date), or None where it did not say.
    """

    def __init__(self, retry_after: float | str | None = None, reason: str = "rate_limited") -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Transient(JobError):  # noqa: N818 - the field's word
    """It did not happen, and may later: try again with back-off."""


class Permanent(JobError):  # noqa: N818 - the field's word
    """It will not happen however often it is tried: bury the job."""


class Unknown(JobError):  # noqa: N818 - the field's word
    """The effect may have happened: the lane's ``on_unknown`` decides."""


class Interrupted(JobError):  # noqa: N818 - the field's word
    """The handler stopped for a drain before any effect: give the job back, spend no attempt."""

    def __init__(self, reason: str = "drain") -> None:
        super().__init__(reason)
