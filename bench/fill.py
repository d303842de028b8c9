"""Fills a contender's queue, in a process of its own: ``python -m bench.fill MODULE FIRST COUNT``.

Prints the queue's name.
"""

from __future__ import annotations

import asyncio
import importlib
import sys

from bench.queues import fill_from
from bench.site import Site


def main() -> None:
    module, first, count = importlib.import_module(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    numbers = range(first, first + count)
    queue = asyncio.run(fill_from(Site.of().broker_url, module.declare, module.message, numbers))
    print(queue)  # noqa: T201 - the program's output


if __name__ == "__main__":
    main()
