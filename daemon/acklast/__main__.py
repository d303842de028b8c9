"""``python -m acklast``: the same command where its script is not on the path."""

from __future__ import annotations

from acklast.cli import main

if __name__ == "__main__":
    main()
