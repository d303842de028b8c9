"""A run's tables for docs/explanation/performance.md: ``python -m bench.markdown FILE``, that of --json."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    run = json.loads(Path(sys.argv[1]).read_text())
    for table in run["tables"].values():
        lines = [
            f"### {table['title']}",
            "",
            *table["markdown"],
            "",
            *(f"{note}  " for note in table["notes"]),
            "",
        ]
        print("\n".join(lines))  # noqa: T201 - the program's output
    print("\n".join(f"- {name}: {value}" for name, value in run["machine"].items()))  # noqa: T201 - as above


if __name__ == "__main__":
    main()
