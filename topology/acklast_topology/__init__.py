"""What a publisher of jobs needs: the contract, the names, the topology as data, a confirmed publisher.

    from acklast_topology import Job, Publisher

    async with Publisher.connect("amqp://localhost/") as publisher:
        job = Job.json("reminders", "2025-06:4711", {"property": 4711}, type="rent.reminder.v1")
        print((await publisher.publish(job)).status)  # confirmed, returned, refused or unknown

The same key twice is one job: publish again whenever the status was not ``confirmed``.
"""

from acklast_topology.contract import Envelope, Malformed, RawMessage, Reason, parse
from acklast_topology.items import Enqueued, Entry, Fate, Manifest, Manifested, NoJob
from acklast_topology.names import Names
from acklast_topology.plan import Binding, Exchange, Plan, Queue, plan_for
from acklast_topology.publish import (
    BrokerUnreachable,
    Job,
    Publisher,
    Result,
    Sender,
    Sent,
    Status,
    TopologyMissing,
)

__all__ = [
    "Binding",
    "BrokerUnreachable",
    "Enqueued",
    "Entry",
    "Envelope",
    "Exchange",
    "Fate",
    "Job",
    "Malformed",
    "Manifest",
    "Manifested",
    "Names",
    "NoJob",
    "Plan",
    "Publisher",
    "Queue",
    "RawMessage",
    "Reason",
    "Result",
    "Sender",
    "Sent",
    "Status",
    "TopologyMissing",
    "parse",
    "plan_for",
]
