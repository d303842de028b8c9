"""What client libraries make of a value in a header or a property, and what the daemon must make of that.

Each program publishes one message a case, under a key that names it, and ends once all are confirmed.
"""

from __future__ import annotations

from typing import Any, Final

PROGRAMS: Final = {
    "values.mjs": """\
import amqp from 'amqplib';

const connection = await amqp.connect(process.env.AMQP_URL);
const channel = await connection.createConfirmChannel();
const at = Math.floor(Date.now() / 1000) + 3600;
const cases = {
  'buffer': { headers: { run: Buffer.from('r-1') } },
  'buffer-key': { headers: { 'job-key': Buffer.from('js:buffer-key') } },
  'time': { headers: { deadline: { '!': 'timestamp', value: at } } },
  'date': { headers: { deadline: new Date(at * 1000) } },
  'seconds': { headers: { deadline: at } },
  'null': { headers: { run: null, deadline: undefined } },
  'true': { headers: { run: true } },
  'empty': { headers: { run: '' } },
  'nested': { headers: { deep: { list: [1, 2.5, 'a', null, { b: false }], big: 2 ** 53 } } },
  'milliseconds': { timestamp: Date.now() },
  'priority': { priority: 200 },
  'charset': { contentType: 'application/json; charset=utf-8' },
  'upper': { contentEncoding: 'UTF-8' },
  'gzip': { contentEncoding: 'gzip' },
  'expiring': { expiration: '600000' },
  'nul': { type: 'a\\0b' },
};
for (const [name, { headers, ...more }] of Object.entries(cases)) {
  channel.publish('acklast.v1.in', 'reminders', Buffer.from('{"property":1}'), {
    persistent: true, mandatory: true, type: 'rent.reminder.v1',
    headers: { 'job-key': `js:${name}`, ...headers }, ...more,
  });
}
const plain = { persistent: true, mandatory: true, type: 'rent.reminder.v1' };
const body = Buffer.from('{"property":1}');
channel.publish('acklast.v1.in', 'reminders', body, { ...plain, headers: { 'job-key': 4711 } });
channel.publish('acklast.v1.in', 'reminders', body, { ...plain, messageId: 'js:id' });
await channel.waitForConfirms();
process.exit(0);
""",
    "values_pika.py": """\
import os
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pika

channel = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"])).channel()
channel.confirm_delivery()
later = datetime.now(timezone.utc) + timedelta(hours=1)
cases = {
    "bytes": {"headers": {"run": b"r-1"}},
    "not-utf8": {"headers": {"run": b"\\xff"}},
    "time": {"headers": {"deadline": later}},
    "number": {"headers": {"run": 7}},
    "nested": {"headers": {"deep": {"list": [1, "a", None, {"b": True}]}, "decimal": Decimal("1.5")}},
    "big": {"headers": {"more": "x" * 70_000}},
    "octets": {"content_type": "application/octet-stream"},
    "user": {"user_id": pika.URLParameters(os.environ["AMQP_URL"]).credentials.username},
}
for name, more in cases.items():
    headers = {"job-key": f"pika:{name}", **more.pop("headers", {})}
    properties = pika.BasicProperties(delivery_mode=2, type="rent.reminder.v1", headers=headers, **more)
    channel.basic_publish("acklast.v1.in", "reminders", b'{"property":1}', properties, mandatory=True)
""",
    "values_kombu.py": """\
import os
from datetime import datetime, timedelta, timezone

from kombu import Connection, Exchange, Producer

connection = Connection(os.environ["AMQP_URL"], transport_options={"confirm_publish": True})
producer = Producer(connection, Exchange("acklast.v1.in", "topic"), "reminders", auto_declare=False)
later = datetime.now(timezone.utc) + timedelta(hours=1)
cases = {
    "serialized": ({"property": 1}, {}),
    "octets": (b'{"property":1}', {"content_type": "application/json"}),
    "raw": (b'{"property":1}', {}),
    "text": ('{"property":1}', {"content_type": "application/json"}),
    "pickled": ({"property": 1}, {"serializer": "pickle"}),
    "compressed": ({"property": 1}, {"compression": "gzip"}),
    "time": ({"property": 1}, {"headers": {"deadline": later}}),
    "bytes": ({"property": 1}, {"headers": {"run": b"r-1"}}),
}
for name, (body, more) in cases.items():
    headers = {"job-key": f"kombu:{name}", **more.pop("headers", {})}
    producer.publish(body, mandatory=True, type="rent.reminder.v1", headers=headers, **more)
""",
}

EXPECTED: Final[dict[str, dict[str | None, Any]]] = {
    "values.mjs": {
        "js:buffer": {"run": "r-1"},
        "js:buffer-key": {},
        "js:time": {"deadline": True},
        "js:date": "invalid_deadline",
        "js:seconds": "invalid_deadline",
        "js:null": {},
        "js:true": "invalid_run",
        "js:empty": "invalid_run",
        "js:nested": {},
        "js:milliseconds": {"published": True},
        "js:priority": {},
        "js:charset": {},
        "js:upper": {},
        "js:gzip": "invalid_payload",
        "js:expiring": {},
        "js:nul": "invalid_type",
        "js:id": {},
        None: "invalid_key",
    },
    "values_pika.py": {
        "pika:bytes": {"run": "r-1"},
        "pika:not-utf8": "invalid_run",
        "pika:time": {"deadline": True},
        "pika:number": "invalid_run",
        "pika:nested": {},
        "pika:big": "invalid_headers",
        "pika:octets": "invalid_payload",
        "pika:user": {},
    },
    "values_kombu.py": {
        "kombu:serialized": {},
        "kombu:octets": {},
        "kombu:raw": "invalid_payload",
        "kombu:text": {},
        "kombu:pickled": "invalid_payload",
        "kombu:compressed": "invalid_payload",
        "kombu:time": {"deadline": True},
        "kombu:bytes": {"run": "r-1"},
    },
}
"""By key, where there is one: the reason of its dead letter, or what of the job that is done."""
