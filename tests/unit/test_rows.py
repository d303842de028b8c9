"""Rows are read one by one: what is no job is told by its line, and the rest goes on."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.cli import rows as rows_module
from acklast.cli.rows import MAX_LINE_BYTES, BadRow, DataError, Entry, Kind, Row, read_rows
from acklast.errors import Exit


def csv_rows(data: str | bytes, *needed: str) -> list[Entry]:
    return list(read_rows(stream(data), Kind.CSV, frozenset(needed)))


def jsonl_rows(data: str | bytes) -> list[Entry]:
    return list(read_rows(stream(data), Kind.JSONL))


def stream(data: str | bytes) -> io.BytesIO:
    return io.BytesIO(data.encode() if isinstance(data, str) else data)


# --- CSV ----------------------------------------------------------------------------------------------


def test_a_csv_row_becomes_an_object_of_its_columns_as_text() -> None:
    assert csv_rows("property_id,note\n0042,süß\n") == [
        Row(2, {"property_id": "0042", "note": "süß"}, '{"note":"süß","property_id":"0042"}'.encode())
    ]


def test_the_order_of_the_columns_does_not_change_the_payload() -> None:
    (one,), (other,) = csv_rows("a,b\n1,2\n"), csv_rows("b,a\n2,1\n")
    assert isinstance(one, Row)
    assert isinstance(other, Row)
    assert one.payload == other.payload


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_lines_are_counted_through_quoted_line_breaks_and_blank_lines(newline: str) -> None:
    text = newline.join(["id,note", '1,"two', 'lines"', "", "2,x", ""])
    rows = csv_rows(text)
    assert [row.line for row in rows] == [2, 5]


def test_a_byte_order_mark_is_no_part_of_the_first_column() -> None:
    (row,) = csv_rows(b"\xef\xbb\xbfid\n7\n", "id")
    assert isinstance(row, Row)
    assert row.fields == {"id": "7"}


def test_bad_rows_are_told_by_line_and_the_rest_is_read() -> None:
    rows = csv_rows(b'id,note\n1,a\n2\n3,a,b\n4,\xff\n5,"a"b\n6,z\n')
    assert rows[0] == Row(2, {"id": "1", "note": "a"}, b'{"id":"1","note":"a"}')
    assert rows[1:3] == [
        BadRow(3, "has 1 values for 2 columns"),
        BadRow(4, "has 3 values for 2 columns"),
    ]
    assert rows[3] == BadRow(5, "is not UTF-8")
    assert isinstance(rows[4], BadRow)
    assert rows[4].line == 6
    assert "is not valid CSV" in rows[4].problem
    assert isinstance(rows[5], Row)
    assert rows[5].line == 7


def test_an_open_quote_names_the_lines_that_it_swallowed() -> None:
    rows = csv_rows('id,note\n1,"open\n2,b\n3,c\n')
    assert isinstance(rows[0], BadRow)
    assert (rows[0].line, len(rows)) == (2, 1)
    assert "up to line" in rows[0].problem


def test_a_long_value_with_line_breaks_is_one_row() -> None:
    (row, after) = csv_rows('id,note\n1,"' + "2,x\n" * 100_000 + '"\n3,y\n')
    assert isinstance(row, Row)
    assert (row.line, len(row.fields["note"]), after.line) == (2, 400_000, 100_003)


def test_behind_a_quote_that_nobody_closed_nothing_is_taken_for_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows_module, "MAX_LINE_BYTES", 1000)
    rows = read_rows(stream('id,note\n1,a\n2,"' + "3,b\n" * 1000), Kind.CSV)
    assert next(rows).line == 2
    with pytest.raises(DataError, match="the row at line 3 does not end"):
        next(rows)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "the file is empty"),
        (b"id,id\n1,2\n", "names 'id' twice"),
        (b"id,\n1,2\n", "has a column without a readable name"),
        (b"id,\xff\n1,2\n", "has a column without a readable name"),
        (b'"id"x,b\n', "header row is not valid CSV"),
        (b"id;property_id\n1;2\n", "needs column 'property_id', which the header row does not have"),
    ],
)
def test_a_header_that_cannot_be_used_is_an_error_of_the_file(data: bytes, told: str) -> None:
    with pytest.raises(DataError) as caught:
        csv_rows(data, "property_id" if b"property_id" in data else "id")
    assert told in caught.value.what
    assert caught.value.exit is Exit.DATA


def test_a_header_that_lacks_the_keys_column_names_what_there_is() -> None:
    with pytest.raises(DataError, match="id;property_id"):
        csv_rows("id;property_id\n1;2\n", "property_id")


def test_a_line_without_end_is_one_bad_row() -> None:
    rows = csv_rows("id\n" + "1," * MAX_LINE_BYTES + "\n2\n")
    assert isinstance(rows[0], BadRow)
    assert rows[1:] == [Row(3, {"id": "2"}, b'{"id":"2"}')]


def test_rows_are_read_as_they_are_asked_for() -> None:
    source = stream("id\n" + "1\n" * 100_000)
    rows = read_rows(source, Kind.CSV)
    next(rows)
    assert source.tell() == len("id\n1\n")


@given(
    st.lists(
        st.fixed_dictionaries(
            {"id": st.text(min_size=1), "note": st.text()},
        ).filter(lambda row: all(_writable(value) for value in row.values()))
    )
)
def test_what_a_csv_writer_writes_is_read_back(rows: list[dict[str, str]]) -> None:
    text = io.StringIO()
    writer = _writer(text)
    writer.writeheader()
    writer.writerows(rows)
    assert [row.fields for row in csv_rows(text.getvalue()) if isinstance(row, Row)] == rows


def _writable(value: str) -> bool:
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in value)


def _writer(text: io.StringIO) -> csv.DictWriter[str]:
    return csv.DictWriter(text, ["id", "note"], quoting=csv.QUOTE_ALL)


# --- JSON lines ---------------------------------------------------------------------------------------


def test_a_json_line_is_sent_as_it_stands() -> None:
    line = '{"price": 1.10, "id": 7}'
    assert jsonl_rows(f"{line}\n\n  {line}  \n") == [
        Row(1, {"price": 1.1, "id": 7}, line.encode()),
        Row(3, {"price": 1.1, "id": 7}, line.encode()),
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert jsonl_rows(b'\xef\xbb\xbf{"id":1}\n') == [Row(1, {"id": 1}, b'{"id":1}')]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"[1]", "is not a JSON object"),
        (b"{", "is not JSON: "),
        (b'{"a": NaN}', "NaN is no JSON value"),
        (b'{"a": "\xff"}', "is not UTF-8"),
        (b"[" * 200_000, "is nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON: "),
    ],
)
def test_a_line_that_is_no_object_is_told_and_the_rest_is_read(line: bytes, problem: str) -> None:
    bad, good = jsonl_rows(line + b'\n{"id": 2}\n')
    assert isinstance(bad, BadRow)
    assert bad.line == 1
    assert problem in bad.problem
    assert good == Row(2, {"id": 2}, b'{"id": 2}')


def test_a_line_without_end_takes_no_more_memory_than_a_line_may() -> None:
    long = b'{"a": "' + b"x" * (2 * MAX_LINE_BYTES) + b'"}'
    bad, good = jsonl_rows(long + b'\n{"id": 2}')
    assert bad == BadRow(1, f"is longer than {MAX_LINE_BYTES} bytes")
    assert good == Row(2, {"id": 2}, b'{"id": 2}')


@given(st.binary())
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    for entry in jsonl_rows(data):
        assert isinstance(entry, Row | BadRow)
    try:
        entries = csv_rows(data)
    except DataError:
        return
    for entry in entries:
        if isinstance(entry, Row):
            assert json.loads(entry.payload) == entry.fields
