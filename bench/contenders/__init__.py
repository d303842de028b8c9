"""The programs that are compared, each a short one of its own, as its library's documentation has it.

Each module has ``declare`` and ``message`` for whoever fills its queue. Run as a program it consumes that
queue until SIGTERM; the acklast daemon, Celery and the like are run by their own command lines.
"""
