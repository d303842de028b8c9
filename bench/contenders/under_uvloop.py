"""Runs another Python program under uvloop: ``python -m bench.contenders.under_uvloop MODULE ARGUMENT...``"""

from __future__ import annotations

import asyncio
import runpy
import sys

import uvloop


def main() -> None:
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
