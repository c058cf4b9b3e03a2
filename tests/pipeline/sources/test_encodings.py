"""A text is UTF-8, or marked, or in the encoding that the user gives; no other is read."""

import bz2
import io
import json
from pathlib import Path

import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.documents.scatter import select_sentences
from clozeworks.pipeline.encodings import (
    SAMPLE_BYTES,
    check_encoding,
    read_sample,
    recoded,
    text_encoding,
)
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.source_formats import FORMATS
from clozeworks.pipeline.sources.formats import find_inputs, plan_units, read_documents

from tests.fixtures.reading import Source

# The first two articles of the Universal Declaration of Human Rights.
TEXTS = {
    "uk": "Всі люди народжуються вільними і рівними у своїй гідності та правах. Вони наділені "
    "розумом і совістю і повинні діяти у відношенні один до одного в дусі братерства.\n"
    "Кожна людина повинна мати всі права і всі свободи, проголошені цією Декларацією, незалежно "
    "від раси, кольору шкіри, статі, мови, релігії, політичних або інших переконань.\n",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены "
    "разумом и совестью и должны поступать в отношении друг друга в духе братства.\n"
    "Каждый человек должен обладать всеми правами и всеми свободами, провозглашенными настоящей "
    "Декларацией, без какого бы то ни было различия, как-то в отношении расы, цвета кожи, пола.\n",
    "ja": "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。"
    "人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。\n"
    "すべて人は、人種、皮膚の色、性、言語、宗教、政治上その他の意見、国民的若しくは社会的出身、"
    "財産、門地その他の地位又はこれに類するいかなる事由による差別をも受けることなく。\n",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués "
    "de raison et de conscience et doivent agir les uns envers les autres dans un esprit de "
    "fraternité.\nChacun peut se prévaloir de tous les droits et de toutes les libertés proclamés "
    "dans la présente Déclaration, sans distinction aucune, notamment d'opinion ou d'idées, où "
    "qu'il soit né, à égalité, même privé de cœur.\n",
}


@pytest.mark.parametrize(
    ("language", "encoding"),
    [("uk", "cp1251"), ("ru", "koi8-r"), ("ja", "shift_jis"), ("ja", "euc_jp"), ("fr", "cp1252")],
)
@pytest.mark.parametrize("times", [1, 100])
def test_a_text_that_is_not_utf_8_is_refused_with_the_encoding_to_try(
    language: str, encoding: str, times: int
):
    text = TEXTS[language] * times
    sample = text.encode(encoding)
    with pytest.raises(UserError, match=r"a\.txt is not UTF-8: if it is ") as refusal:
        text_encoding(sample, "a.txt")
    guess = str(refusal.value).removesuffix(".").rpartition("give `encoding` ")[2]
    assert sample.decode(check_encoding(guess)) == text
    assert text_encoding(sample, "a.txt", given=encoding) == check_encoding(encoding)


@pytest.mark.parametrize("text", TEXTS.values())
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_unicode_is_known_whatever_encoding_is_given(text: str, encoding: str) -> None:
    sample = text.encode(encoding)
    known = text_encoding(sample, "a.txt", given="cp1251")
    assert recoded(io.BytesIO(sample), known, "text").read().decode("utf-8-sig") == text


@pytest.mark.parametrize(
    ("first", "second"), [("koi8-r", "cp1251"), ("cp1251", "utf-8"), ("utf-8", "cp1251")]
)
def test_a_text_that_changes_its_encoding_is_refused(first: str, second: str, tmp_path: Path):
    text = TEXTS["ru"]
    (tmp_path / "a.txt").write_bytes(text.encode(first) + text.encode(second))
    with pytest.raises(UserError, match=r"a\.txt is not UTF-8.*give `encoding` "):
        find_inputs([str(tmp_path)], None, IngestConfig())


def test_a_few_bad_bytes_do_not_make_another_encoding() -> None:
    text = TEXTS["uk"].encode()
    for damaged in (text[:101], text[1:], text[:50] + b"\xff\xfe\xff" + text[50:]):
        assert text_encoding(damaged, "a.txt") == "utf-8"
    # No character shows that it is UTF-8, and the few letters would be lost.
    with pytest.raises(UserError, match="is not UTF-8"):
        text_encoding("A café in a dull autumn.\n".encode("cp1252") * 3, "a.txt")
    # In ASCII a thousandth may be foreign: those sentences are left out.
    nearly_ascii = b"The man\xa1\xa6s house is his. " + b"We know what we want. " * 150
    assert text_encoding(nearly_ascii, "a.txt") == "utf-8"
    (document,) = Source("text", nearly_ascii, "a.txt").read(counters := Counters())
    sentences = select_sentences(document, IngestConfig(), counters)
    assert set(sentences) == {"We know what we want."}
    assert counters.counts["sentences_with_gaps"] == 1
    assert counters.counts["text_lines_with_invalid_utf8"] == 1
    # Bad bytes can be kept as U+FFFD by saying so.
    assert text_encoding(b"Plain.\n\x81\n", "a.txt", given="utf-8") == "utf-8"


@pytest.mark.parametrize("end", [b"\n", "😀".encode()])
def test_the_sample_is_whole_lines_or_characters(end: bytes) -> None:
    text = (b"x" * (SAMPLE_BYTES - 2) + end) * 2
    sample = read_sample(io.BytesIO(text))
    assert SAMPLE_BYTES - 6 < len(sample) <= SAMPLE_BYTES
    assert text.startswith(sample) and sample.decode()
    assert read_sample(io.BytesIO(b"no line break")) == b"no line break"


def test_a_stream_is_recoded_in_pieces() -> None:
    text = TEXTS["ja"] * 5000
    stream = recoded(io.BytesIO(text.encode("gb18030")), "gb18030", "text")
    assert stream.readline().decode() == text.splitlines(keepends=True)[0]
    assert stream.read().decode() == text.partition("\n")[2]
    with pytest.raises(UserError, match="b is not in the encoding shift_jis from about byte 0 on"):
        recoded(io.BytesIO(text.encode("gb18030")), "shift_jis", "b").read()
    with pytest.raises(UserError, match="b is not in the encoding utf-16 from about byte 0 on"):
        recoded(io.BytesIO(text.encode("utf-16-le")), "utf-16", "b").read()


def test_names_of_encodings() -> None:
    assert check_encoding("Windows-1251") == "cp1251"
    for name in ("klingon", "hex", "idna", "", "a\0b"):
        with pytest.raises(UserError, match="which is not the name of an encoding"):
            check_encoding(name)


def paragraphs_of(path: Path, **config: str) -> list[str]:
    read = read_documents(str(path), IngestConfig(**config))  # pyright: ignore[reportArgumentType]
    return [paragraph for document in read for paragraph in document.paragraphs]


@pytest.mark.parametrize(
    ("language", "encoding"),
    [("uk", "koi8-u"), ("ja", "shift_jis"), ("fr", "iso8859-15"), ("uk", "utf-16")],
)
def test_every_format_reads_every_encoding(language: str, encoding: str, tmp_path: Path) -> None:
    expected = TEXTS[language].splitlines() * 20
    contents = {
        "a.txt": "\n".join(expected),
        "a.jsonl": "\n".join(json.dumps({"text": row}, ensure_ascii=False) for row in expected),
        "a.csv": "id,text\n" + "\n".join(f'{i},"{row}"' for i, row in enumerate(expected)),
        "a.tsv": "id\ttext\n" + "\n".join(f"{i}\t{row}" for i, row in enumerate(expected)),
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.write_bytes(content.encode(encoding))
        compressed = tmp_path / f"{name}.bz2"
        compressed.write_bytes(bz2.compress(content.encode(encoding)))
        for file in (path, compressed):
            assert paragraphs_of(file, documents="line", encoding=encoding) == expected


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].kind != "bytes"])
def test_every_format_of_text_refuses_an_encoding_that_is_not_given(name: str, tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(TEXTS["fr"].encode("cp1252"))
    with pytest.raises(UserError, match=r"a is not UTF-8: if it is .* give `encoding` "):
        read_documents(str(path), IngestConfig(format=name))


def test_a_text_that_is_not_utf_8_is_one_range(tmp_path: Path) -> None:
    line = json.dumps({"text": TEXTS["ru"]}, ensure_ascii=False) + "\n"
    config = IngestConfig(encoding="cp1251")
    for encoding, num_ranges in (("utf-8", 2), ("cp1251", 1)):
        path = tmp_path / f"{encoding}.jsonl"
        path.write_bytes(line.encode(encoding) * 4000)
        inputs, _ = find_inputs([str(path)], None, config)
        ranges = [part for unit in plan_units(inputs, config) for part in unit]
        assert len(ranges) >= num_ranges
        assert {part.encoding for part in ranges} == {encoding}
        assert (len(ranges) == 1) == (encoding == "cp1251")
