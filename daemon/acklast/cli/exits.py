"""What each exit code means, in one line: for ``--help`` and for the reference."""

from __future__ import annotations

from typing import Final

from acklast.errors import Exit

INTERRUPTED: Final = 130
"""The shell's code for a command that Ctrl-C ended (128 + SIGINT)."""
UNREAD: Final = 141
"""The shell's code for a command whose reader went away, such as ``head`` (128 + SIGPIPE)."""

_INCOMPLETE: Final = {
    ("enqueue",): "some items were not accepted; the output names them",
    ("dead drop",): "some letters stay",
    ("ledger erase",): "some jobs are not over, and left as they are",
    ("unresolved resolve", "unresolved reconcile"): "of some jobs nothing is decided; the output says why",
    ("ledger prune", "jobs missing", "topology apply"): "another is at work",
    ("runs cancel",): "some jobs are locked",
    ("runs watch",): "some jobs are dead, unresolved or cancelled",
    ("redrive status --watch",): "it is finished, and some letters are not done",
    ("lanes",): "not every daemon follows yet",
    ("workers drain",): "it was asked, and has not begun yet",
    ("schedule fire",): "some rows made no job, or it failed",
}
"""By command: one command's help has its own line alone."""

MEANINGS: Final = {
    Exit.OK: "done; nothing was cut, everything fits",
    Exit.CUT: "run: the drain had to cut work; every job was recorded or goes back to the broker",
    Exit.INCOMPLETE: ". ".join(f"{', '.join(who)}: {what}" for who, what in _INCOMPLETE.items()),
    Exit.NOT_FOUND: "the ledger knows nothing by that name",
    Exit.UNFIT: "check, runs show, runs proof, jobs missing, why, topology plan --exit-code:"
    " something must be put right, and is told. redrive status --watch: it waits for a verdict",
    Exit.CANCELLED: "runs watch, redrive status --watch: it was cancelled",
    Exit.TIMED_OUT: "runs watch, redrive status --watch: it was not finished in time",
    Exit.AT_RISK: "forecast: a run may miss its deadline, or nobody can tell",
    Exit.LATE: "forecast: a run is expected to miss its deadline, or has missed it",
    Exit.USAGE: "the command line is wrong",
    Exit.DATA: "the input file cannot be read as what it claims to be",
    Exit.UNAVAILABLE: "broker or ledger cannot be reached; worth a restart",
    Exit.SOFTWARE: "a defect in acklast or in a handler module",
    Exit.OUTPUT: "standard output cannot be written; what was done stays done",
    Exit.CONFIG: "configuration, topology or schema does not fit; a restart does not help",
}

_ANY: Final = frozenset({Exit.OK, Exit.USAGE, Exit.UNAVAILABLE, Exit.SOFTWARE, Exit.OUTPUT, Exit.CONFIG})


def epilog(*own: Exit, incomplete: str = "") -> str:
    """The codes that a command can end with, for its ``--help``: its own and those that any command may.

    ``incomplete`` names a command that can end with ``INCOMPLETE``; of the others nothing is told then.
    """
    meanings = dict(MEANINGS)
    codes = _ANY.union(own)
    if incomplete:
        codes |= {Exit.INCOMPLETE}
        [meanings[Exit.INCOMPLETE]] = [what for who, what in _INCOMPLETE.items() if incomplete in who]
    return "Exit codes:\n" + "\n".join(f"{code.value:>3}  {meanings[code]}" for code in sorted(codes))
