"""What ``acklast why`` makes of what it has read."""

from __future__ import annotations

from datetime import UTC, datetime

from acklast.cli.why_read import prospects_of
from acklast.config import Config
from acklast.lane_queues import Queues
from acklast.ledger.api import State
from acklast.ledger.backlog import Backlog, Depth
from acklast.ledger.standing import DaemonView, Standing
from acklast.outlook.binding import Constraint
from acklast.reporter import Standing as Stands

AT = datetime(2030, 1, 1, tzinfo=UTC)
CONFIG = Config.model_validate(
    {
        "app": "handlers:app",
        "state_dir": "/nowhere",
        "broker": {"urls": ["amqp://localhost/"]},
        "ledger": {"dsn": "postgresql://localhost/x"},
        "lanes": {"a": {}},
    }
)
DAEMON = DaemonView(1, "w", True, 0.0, 0, 10, 3, 0, 9, 5.0, None, None, None, Stands.OPEN.value, None, AT)


def test_what_holds_a_lane_back_is_told_of_all_that_is_before_the_job() -> None:
    """Also of what only the broker knows of: else nothing would hold back a job with thousands before it."""
    backlog = Backlog(AT, (Depth("a", "normal", State.WAITING, None, 1),))
    standing = Standing(AT, 0, {"a": (DAEMON,)}, {}, ())
    seen = prospects_of(CONFIG, backlog, standing, {"a": Queues(ready=5000, delayed=0)})["a"]
    assert (seen.jobs, seen.binding.constraint) == (5003, Constraint.LEDGER)
    assert seen.binding.said == "4,999 wait, and 3 of 10 slots are in use"
    unseen = prospects_of(CONFIG, backlog, standing, {"a": Queues()})["a"]
    assert unseen.jobs == 1
