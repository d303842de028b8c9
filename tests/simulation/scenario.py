"""What a simulation is about: the messages, what their handlers do, and how the lane is set."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from acklast.config.quota import Quota
from acklast.handlers.app import App
from acklast.ledger.api import State
from acklast.policy import Policy
from acklast.testing.setting import BudgetSetting, LaneSetting, Setting
from acklast_topology.contract import RawMessage

LEASE_S: Final = 15.0
DRAIN_S: Final = 3.0
POLICY: Final = Policy(
    max_attempts=4,
    max_rate_limited=6,
    backoff_base_s=2.0,
    backoff_cap_s=20.0,
    retry_after_cap_s=30.0,
    timeout_s=40.0,
)


@dataclass(frozen=True, slots=True)
class Post:
    """One message. ``acts`` is what the handler does at its first start, its second, and so on."""

    key: str
    acts: tuple[str, ...] = ("do",)
    body: bytes = b"{}"
    type: str = "work.v1"
    at_s: float = 0.0
    deadline_s: float | None = None
    not_before_s: float | None = None
    headers: dict[str, Any] = field(default_factory=dict)
    ends: frozenset[State] = frozenset({State.DONE})
    """Where the job may end when next to nothing goes wrong."""

    def message(self, now: datetime) -> RawMessage:
        headers = dict(self.headers)
        for name, after_s in (("deadline", self.deadline_s), ("not-before", self.not_before_s)):
            if after_s is not None:
                headers[name] = (now + timedelta(seconds=after_s)).isoformat()
        return RawMessage(
            body=self.body,
            exchange="acklast.v1.in",
            routing_key="work",
            content_type="application/json",
            headers=headers,
            message_id=self.key,
            type=self.type,
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """Messages, and the processes that work on them."""

    posts: tuple[Post, ...]
    policy: Policy = POLICY
    reconcile: str = ""
    """``truth``: the handler's reconcile looks at the effects. ``shrug``: it cannot tell. Empty: none."""
    processes: int = 1
    concurrency: int = 4
    quota: tuple[int, float] | None = None
    cancel: str = ""
    """A key that a person cancels a second after the beginning."""
    cancel_run: str = ""
    """A run that a person cancels at that time."""

    def setting(self, app: App) -> Setting:
        """How its processes are set."""
        lane = LaneSetting(self.policy, self.concurrency, "api" if self.quota else None, prefetch=10)
        budgets = {"api": BudgetSetting(Quota(*self.quota))} if self.quota else {}
        return Setting(app, {"work": lane}, budgets, lease_s=LEASE_S, drain_s=DRAIN_S)

    def acts(self, key: str) -> tuple[str, ...]:
        return next(post.acts for post in self.posts if post.key == key)
