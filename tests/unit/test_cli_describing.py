"""``topology asyncapi`` and ``topology schema``: what they print and write, without a broker or a ledger."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from acklast.cli.root import run
from acklast.cli.whole_file import whole_file
from acklast.errors import Exit
from acklast_topology.contract_schema import contract_schema

Capture = pytest.CaptureFixture[str]
HANDLERS = """
from acklast import App
from pydantic import BaseModel

app = App()


class Note(BaseModel):
    text: str


@app.job("note.v1", lane="notes")
async def note(payload: Note) -> None: ...


@app.job("scan.v1", lane="notes")
async def scan(payload: bytes) -> None: ...
"""


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("ACKLAST")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("described_notes.py").write_text(HANDLERS)
    Path("acklast.toml").write_text(
        'app = "described_notes:app"\n[broker]\nurl = "amqp://u:hunter2@nowhere/"\n'
        '[ledger]\ndsn = "postgresql://nowhere/"\n[lanes.notes]\n'
    )


def test_the_contract_needs_no_configuration(capsys: Capture) -> None:
    Path("acklast.toml").unlink()
    assert run(["topology", "schema"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == contract_schema()


def test_a_job_types_payload(capsys: Capture) -> None:
    assert run(["topology", "schema", "--type", "note.v1", "--json"]) == Exit.OK
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["properties"]["text"]["type"] == "string"


def test_a_payload_without_a_schema_says_why(capsys: Capture) -> None:
    assert run(["topology", "schema", "--type", "scan.v1"]) == Exit.OK
    assert "bytes" in json.loads(capsys.readouterr().out)["description"]


def test_an_unknown_type_names_those_that_are_known(capsys: Capture) -> None:
    assert run(["topology", "schema", "--type", "nope"]) == Exit.USAGE
    assert "note.v1, scan.v1" in capsys.readouterr().err


def test_the_asyncapi_document_is_written_as_a_whole(capsys: Capture, tmp_path: Path) -> None:
    assert run(["topology", "asyncapi", "--side", "publisher", "--out", "a.json", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {"file": "a.json"}
    written = json.loads((tmp_path / "a.json").read_text())
    assert list(written["operations"]) == ["send.notes"]
    assert "hunter2" not in json.dumps(written)
    assert not (tmp_path / "a.json.part").exists()


def test_a_file_that_cannot_be_written_is_told(capsys: Capture) -> None:
    assert run(["topology", "asyncapi", "--out", "no/such/place.json"]) == Exit.USAGE
    assert "cannot be written" in capsys.readouterr().err


def test_a_document_that_breaks_off_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    out.write_text("before")

    def broken() -> None:
        with whole_file(out) as file:
            file.write("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert [(path.name, path.read_text()) for path in tmp_path.glob("a.*")] == [("a.json", "before")]
