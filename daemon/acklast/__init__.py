"""A RabbitMQ consumer daemon that records every job in Postgres before it acks."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("acklast")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
