"""CSV and TSV: quotes, line breaks and delimiters in fields, bad rows, ranges of TSV."""

import csv
import io
from pathlib import Path

import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.sources.delimited import csv_rows
from clozeworks.pipeline.sources.formats import read_documents
from clozeworks.pipeline.sources.streams import LONGEST_LINE_BYTES, RawDocument
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.reading import ONE_RANGE, Source

PROSE = "Almonds are a rich source of oil, as several studies have shown."
SECOND = "So are olives, which grow in Greece."


def read(
    content: str | bytes,
    format: str = "csv",
    counters: Counters | None = None,
    range_bytes: int = ONE_RANGE,
    name: str | None = None,
    config: IngestConfig | None = None,
) -> list[RawDocument]:
    raw = content if isinstance(content, bytes) else content.encode()
    source = Source(format, raw, name or f"part.{format}")
    return list(source.read(counters, range_bytes, config))


def paragraphs(documents: list[RawDocument]) -> list[list[str]]:
    return [document.paragraphs for document in documents]


def test_rows_become_documents_in_the_columns_that_the_header_names():
    wiki = f'12,https://ko.wikipedia.org/wiki/A,A,"{PROSE}"'
    counters = Counters()
    found = read(f'id,url,title,text\n{wiki}\n3,,B,"{PROSE}"\n,,,"{PROSE}"\n', counters=counters)
    last = len("id,url,title,text\n") + len(wiki) + len(f'\n3,,B,"{PROSE}"\n')
    assert [
        (document.source, document.id, document.title, document.language) for document in found
    ] == [
        ("kowiki", "12", "A", "ko"), ("csv", "part/3", "B", ""), ("csv", f"part#{last}", "", ""),
    ]  # fmt: skip
    assert not counters.bad


def test_quoted_fields_hold_delimiters_quotes_and_line_breaks():
    content = (
        f'title,text\r\n"A, ""B""","{PROSE}\r\n\r\n{SECOND} ""Yes"", he said."\r\n'
        f"C,{SECOND.replace(',', '')}\r\n"
    )
    first, second = read(content)
    assert (first.title, first.paragraphs) == ('A, "B"', [PROSE, f'{SECOND} "Yes", he said.'])
    assert (second.title, second.paragraphs) == ("C", ["So are olives which grow in Greece."])


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_header_shows_the_delimiter(delimiter):
    header = delimiter.join(["title", '"one, two; three"', " text "])
    (document,) = read(f"{header}\n{delimiter.join(['A', '', chr(34) + PROSE + chr(34)])}\n")
    assert (document.title, document.paragraphs) == ("A", [PROSE])


def test_tsv_is_not_quoted():
    counters = Counters()
    content = f'title\ttext\n"A\t"Almonds" are {PROSE}\nB\tone "\n\nC\ta\tb\n'
    found = read(content, "tsv", counters)
    assert [(document.title, document.paragraphs) for document in found] == [
        ('"A', [f'"Almonds" are {PROSE}']), ("B", ['one "']),
    ]  # fmt: skip
    assert counters.bad == {"wrong_number_of_columns": 1}
    assert counters.examples["wrong_number_of_columns"] == [f"part.tsv, byte {content.index('C')}"]


@pytest.mark.parametrize("range_bytes", [1, 50, 137, 1000])
def test_every_range_of_a_tsv_gives_the_same_documents(range_bytes):
    content = "id\ttext\n" + "".join(f"{i}\t{PROSE} {i} {'x' * (i % 7)}\n" for i in range(40))
    assert len(read(content, "tsv")) == 40
    assert read(content, "tsv", range_bytes=range_bytes) == read(content, "tsv")


@pytest.mark.parametrize("range_bytes", [1, 50, ONE_RANGE])
def test_a_csv_is_one_range_because_lines_do_not_show_where_rows_begin(range_bytes):
    content = "text\n" + "".join(f'"{PROSE}\n{i}"\n' for i in range(9))
    assert len(Source("csv", content.encode(), "a.csv").plan(range_bytes)) == 1
    assert len(read(content, range_bytes=range_bytes)) == 9


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('A,"closed" too early', "not_csv"),
        ("A", "wrong_number_of_columns"),
        ("A,b,c", "wrong_number_of_columns"),
        ("A,b\rc", "not_csv"),
    ],
)
def test_a_bad_row_is_counted_and_costs_only_itself(bad, reason):
    good = f'X,"{PROSE}"'
    for end in ("", f"\n{good}\n{good}\n"):
        counters = Counters()
        found = read(f"title,text\n{good}\n{bad}{end}", counters=counters)
        assert paragraphs(found) == [[PROSE]] * (1 + end.count(good))
        assert counters.bad == {reason: 1}
        place = len("title,text") + len(good) + 2
        assert counters.examples[reason] == [f"part.csv, byte {place}"]


def test_a_missing_quote_costs_the_lines_to_the_next_one_which_are_counted():
    good = f'X,"{PROSE}"'
    counters = Counters()
    found = read(f'text,id\nA,"a\nb,c\n{good}\n{good}\nA,"end', counters=counters)
    assert [document.id for document in found] == [f"part/{PROSE}"]
    assert counters.bad == {"not_csv": 4}


def test_a_field_without_end_does_not_fill_the_memory():
    line = "x" * (1 << 20)
    num_lines = LONGEST_LINE_BYTES >> 20
    lines = ["a,b", f'1,"{line}', *[line] * num_lines, "2,3"]
    rows = csv_rows(enumerate(lines), "a.csv", counters := Counters())
    assert [fields for _, fields in rows][-1] == ["2", "3"]
    assert num_lines <= counters.bad["not_csv"] <= num_lines + 1


def test_an_article_is_longer_than_the_csv_module_allows_by_default():
    text = f"{PROSE} " * 4000
    assert len(text) > 131_072
    assert paragraphs(read(f'text\n"{text}"\n')) == [[text]]


@pytest.mark.parametrize("format", ["csv", "tsv"])
@pytest.mark.parametrize("content", ["text\nOne.\n\nTwo.\n\n", "text\tid\nOne.\t1\n\nTwo.\t2\n\n"])
def test_empty_lines_are_not_bad_input(format, content):
    counters = Counters()
    assert paragraphs(read(content, format, counters)) == [["One."], ["Two."]]
    assert not counters.bad


def test_an_empty_field_in_quotes_is_a_row_without_text():
    counters = Counters()
    assert paragraphs(read('text\nOne.\n""\nTwo.\n', counters=counters)) == [["One."], ["Two."]]
    assert counters.counts["rows_without_text"] == 1
    assert not counters.bad


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("title,body\nA,b\n", "part.csv has no column 'text', only title, body: give `text_col"),
        ("input_ids\n1\n", "part.csv holds token ids, not texts: give the documents that they"),
        (
            "id,text\r1,a\r",
            "part.csv has no column 'text', only a line that .* does not end in LF: ",
        ),
        ("text,text\na,b\n", "part.csv has several columns 'text': rename or remove all but one."),
        ("id,text,id\n1,a,2\n", "part.csv has several columns 'id'"),
    ],
)
def test_a_file_without_the_text_column_is_refused(content, message):
    with pytest.raises(UserError, match=message):
        read(content)
    assert paragraphs(read("title,body\nA,b\n", config=IngestConfig(text_column="body"))) == [["b"]]


def test_files_are_known_by_their_suffix_and_quoted_tabs_by_format(tmp_path: Path):
    (tmp_path / "a.csv").write_text(f'text\n"{PROSE}"\n')
    (tmp_path / "b.TSV").write_text(f"text\n{PROSE}\n")
    found = [(document.source, document.paragraphs) for document in read_documents(str(tmp_path))]
    assert found == [("csv", [PROSE]), ("tsv", [PROSE])]
    quoted = tmp_path / "c.tsv"
    quoted.write_text(f'title\ttext\nA\t"{PROSE}\n{SECOND}"\n')
    (document,) = read_documents(str(quoted), IngestConfig(format="csv"))
    assert document.paragraphs == [PROSE, SECOND]


FIELD = st.text(st.sampled_from('ab",;\t\n é한'), max_size=8)


@given(st.lists(st.tuples(FIELD, FIELD), max_size=6), st.sampled_from(",;\t"))
def test_what_the_csv_module_writes_is_read_again(rows, delimiter):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows([("a", "b"), *rows])
    lines = file.getvalue().split("\n")
    counters = Counters()
    found = [tuple(fields) for _, fields in csv_rows(enumerate(lines), "a.csv", counters)]
    assert found[1:-1] == rows
    assert not counters.bad
