"""The reference of the contract: its examples are good messages, its limits and reasons are the code's."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from acklast_topology.contract import MAX_BYTES, MAX_HEADERS_BYTES, Envelope, Reason, parse
from acklast_topology.job import MAX_HEADER_NAME_BYTES, MAX_ROUTING_KEY_BYTES
from acklast_topology.message import MAX_PRIORITY
from harness.contract_documents import SCHEMA, raw_of

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "contract.md").read_text(encoding="utf-8")
EXAMPLES = [
    json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
]
STRUCTURED = {"content_type": "application/cloudevents+json"}


def message(example: dict[str, Any]) -> dict[str, Any]:
    """The whole message: an event stands alone in the page."""
    return {"properties": STRUCTURED, "body": example} if "specversion" in example else example


def read(example: dict[str, Any]) -> Envelope:
    envelope = parse(raw_of(message(example)))
    assert isinstance(envelope, Envelope), envelope
    return envelope


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == TEXT.count("```json") == 4


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_valid_and_is_read_as_the_page_says(example: dict[str, Any]) -> None:
    SCHEMA.validate(message(example))
    job = read(example)
    assert job.key == "2025-06:4711"
    assert json.loads(job.body) == {"property": 4711}


def test_the_examples_are_of_one_type_where_they_have_one() -> None:
    assert [read(example).type for example in EXAMPLES] == ["rent.reminder.v1"] * 3 + [None]


def test_the_full_example_has_its_times() -> None:
    [full] = [job for job in map(read, EXAMPLES) if job.deadline]
    assert full.deadline == datetime(2025, 6, 30, 16, tzinfo=UTC)
    assert full.not_before == datetime(2025, 6, 1, 6, tzinfo=UTC)
    assert full.published_at == datetime(2025, 6, 1, 12, tzinfo=UTC)
    assert full.run == "2025-06"


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_its_row(reason: Reason) -> None:
    table = TEXT.split("\n## Reasons\n", 1)[1]
    assert re.search(rf"^\|[^|]*`{reason}`[^|]*\|", table, re.MULTILINE)


@pytest.mark.parametrize(
    "row",
    [
        f"| key, run, `type`, content type | {MAX_BYTES} bytes",
        f"| routing key | {MAX_ROUTING_KEY_BYTES} bytes",
        f"{MAX_HEADER_NAME_BYTES} with `Publisher`",
        f"| all headers but `x-*` | {MAX_HEADERS_BYTES:,} bytes",
        f"| priority | {MAX_PRIORITY} |",
    ],
)
def test_limits_are_the_codes_own(row: str) -> None:
    assert row in TEXT


def test_links_to_headings_lead_somewhere() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-")
        for h in re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= headings
