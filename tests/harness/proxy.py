"""The proxy that tests put in front of a server."""

from dev.proxy import Proxy

__all__ = ["Proxy"]
