"""What each exit code means, in one line: for ``--help`` and for the reference."""

from __future__ import annotations

from typing import Final

from acklast.errors import Exit

INTERRUPTED: Final = 130
"""The shell's code for a command that Ctrl-C ended (128 + SIGINT)."""

MEANINGS: Final = {
    Exit.OK: "done; nothing was cut, everything fits",
    Exit.CUT: "run: the drain had to cut work; every job was given back or recorded",
    Exit.INCOMPLETE: "enqueue: some items were not accepted; the output names them",
    Exit.NOT_FOUND: "the ledger knows nothing by that name",
    Exit.UNFIT: "check, runs show: something must be put right; the output says what",
    Exit.USAGE: "the command line is wrong",
    Exit.DATA: "the input file cannot be read as what it claims to be",
    Exit.UNAVAILABLE: "broker or ledger cannot be reached; worth a restart",
    Exit.SOFTWARE: "a defect in acklast or in a handler module",
    Exit.CONFIG: "configuration, topology or schema does not fit; a restart does not help",
}

EPILOG: Final = "Exit codes:\n\n" + "\n\n".join(f"{code.value:>3}  {text}" for code, text in MEANINGS.items())
