"""Texts in the encodings of before Unicode are read rightly or refused, never wrongly."""

import bz2
import io
import json
from pathlib import Path

import pytest
from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.encodings import (
    SAMPLE_BYTES,
    Detection,
    check_encoding,
    detect,
    read_sample,
)
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.sources.formats import find_inputs, plan_units, read_documents
from clozeworks.pipeline.text_streams import recoded

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
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. "
    "Είναι προικισμένοι με λογική και συνείδηση, και οφείλουν να συμπεριφέρονται μεταξύ τους με "
    "πνεύμα αδελφοσύνης.\nΚάθε άνθρωπος δικαιούται να επικαλείται όλα τα δικαιώματα και όλες τις "
    "ελευθερίες που προκηρύσσει η παρούσα Διακήρυξη, χωρίς καμία απολύτως διάκριση.\n",
    "ja": "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。"
    "人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。\n"
    "すべて人は、人種、皮膚の色、性、言語、宗教、政治上その他の意見、国民的若しくは社会的出身、"
    "財産、門地その他の地位又はこれに類するいかなる事由による差別をも受けることなく。\n",
    "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 "
    "이성과 양심을 부여받았으며 서로 형제애의 정신으로 행동하여야 한다.\n"
    "모든 사람은 인종, 피부색, 성, 언어, 종교, 정치적 또는 기타의 견해, 민족적 또는 사회적 출신, "
    "재산, 출생 또는 기타의 신분과 같은 어떠한 종류의 차별이 없이 모든 권리를 향유한다.\n",
    "zh": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。\n"
    "人人有资格享有本宣言所载的一切权利和自由，不分种族、肤色、性别、语言、宗教、政治或其他见解、"
    "国籍或社会出身、财产、出生或其他身份等任何区别。\n",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués "
    "de raison et de conscience et doivent agir les uns envers les autres dans un esprit de "
    "fraternité.\nChacun peut se prévaloir de tous les droits et de toutes les libertés proclamés "
    "dans la présente Déclaration, sans distinction aucune, notamment d'opinion ou d'idées, où "
    "qu'il soit né, à égalité, même privé de cœur.\n",
}
ENCODINGS = [
    ("uk", "cp1251"),
    ("uk", "koi8-u"),
    ("ru", "cp1251"),
    ("ru", "koi8-r"),
    ("el", "cp1253"),
    ("ja", "shift_jis"),
    ("ja", "euc_jp"),
    ("ko", "euc_kr"),
    ("zh", "gb18030"),
    ("fr", "cp1252"),
    ("fr", "iso8859-15"),
]


@pytest.mark.parametrize(("language", "encoding"), ENCODINGS)
@pytest.mark.parametrize("times", [1, 100])
def test_encodings_are_detected(language: str, encoding: str, times: int) -> None:
    text = TEXTS[language] * times
    sample = text.encode(encoding)
    detection = detect(sample)
    assert not detection.doubt
    assert detection.is_detected
    assert detection.agreeing == detection.parts >= 1
    assert sample.decode(detection.encoding) == text


@pytest.mark.parametrize("text", TEXTS.values())
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_unicode_needs_no_detection(text: str, encoding: str) -> None:
    sample = text.encode(encoding)
    detection = detect(sample, encoding="cp1251")
    assert not detection.is_detected
    # The given encoding is that of texts that are not UTF-8.
    stream = recoded(io.BytesIO(sample), detection.encoding, "text")
    assert stream.read().decode("utf-8-sig") == text


@pytest.mark.parametrize(
    ("first", "second"),
    [("cp1251", "koi8-r"), ("koi8-r", "cp1251"), ("cp1251", "utf-8"), ("utf-8", "cp1251")],
)
def test_a_text_that_changes_its_encoding_is_refused(
    first: str, second: str, tmp_path: Path
) -> None:
    for times in (1, 100, 10_000):  # up to 7 MB, of which windows are read
        text = TEXTS["ru"] * times
        (tmp_path / "a.txt").write_bytes(text.encode(first) + text.encode(second))
        with pytest.raises(UserError, match=r"a\.txt is not UTF-8.*iconv -f ENCODING -t UTF-8 "):
            find_inputs([str(tmp_path)], None, IngestConfig())


def test_a_few_bad_bytes_do_not_make_another_encoding() -> None:
    text = TEXTS["uk"].encode()
    for damaged in (text[:101], text[1:], text[:50] + b"\xff\xfe\xff" + text[50:]):
        assert detect(damaged) == Detection(encoding="utf-8")
    # English of long ago has but a few letters that are not ASCII.
    english = "It was a dull autumn day.\n" * 1000
    accented = "Zoë’s café “Chez Noël” – ‘closed’, naïvely, for the fête.\n" * 10
    assert detect((english + accented).encode("cp1252")).encoding == "cp1252"
    assert detect(b"Plain text.\n" * 1000 + b"\x81\n") == Detection(encoding="utf-8")
    # A few letters in UTF-8 tell more than a line of bad bytes.
    plain = b"Plain text, as English is mostly.\n" * 2000
    bad = b"x \x91 \x98 \x9f \xa6 \xad \xb4 \xbb \xc2 \xc9 \xd0 \xd7 \xde \xe5 \xec\n"
    assert detect(plain + "A café.\n".encode() * 3 + bad) == Detection(encoding="utf-8")


def test_the_sample_is_from_all_over_a_large_text() -> None:
    lines = [f"line {number:07d}\n".encode() for number in range(200_000)]
    text = b"".join(lines)
    sample = read_sample(io.BytesIO(text), len(text))
    assert len(sample) <= SAMPLE_BYTES
    assert set(sample.splitlines(keepends=True)) <= set(lines)
    assert sample.startswith(lines[0])
    assert sample.endswith(lines[-1])
    small = io.BytesIO(b"no line break")
    assert read_sample(small, 13) == b"no line break"


def test_a_stream_is_recoded_in_pieces() -> None:
    text = TEXTS["zh"] * 5000
    stream = recoded(io.BytesIO(text.encode("gb18030")), "gb18030", "text")
    assert stream.readline().decode() == text.splitlines(keepends=True)[0]
    assert stream.read().decode() == text.partition("\n")[2]
    with pytest.raises(UserError, match="b is not in the encoding shift_jis from about byte 0 on"):
        recoded(io.BytesIO(text.encode("gb18030")), "shift_jis", "b").read()


def test_names_of_encodings() -> None:
    assert check_encoding("Windows-1251") == "cp1251"
    for name in ("klingon", "hex", "", "a\0b"):
        with pytest.raises(UserError, match="which is not the name of an encoding"):
            check_encoding(name)


def rows(language: str) -> list[str]:
    return TEXTS[language].splitlines() * 20


def paragraphs_of(path: Path, **config: str) -> list[str]:
    read = read_documents(str(path), IngestConfig(**config))  # pyright: ignore[reportArgumentType]
    return [paragraph for document in read for paragraph in document.paragraphs]


@pytest.mark.parametrize(("language", "encoding"), [*ENCODINGS, ("uk", "utf-16")])
def test_every_format_reads_every_encoding(language: str, encoding: str, tmp_path: Path) -> None:
    expected = rows(language)
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
        for config in ({}, {"language": language}, {"encoding": encoding}):
            assert paragraphs_of(path, documents="line", **config) == expected
        assert paragraphs_of(compressed, documents="line") == expected


def test_a_text_that_is_not_utf_8_is_one_range(tmp_path: Path) -> None:
    line = json.dumps({"text": TEXTS["ru"]}, ensure_ascii=False) + "\n"
    for encoding, num_ranges in (("utf-8", 2), ("cp1251", 1)):
        path = tmp_path / f"{encoding}.jsonl"
        path.write_bytes(line.encode(encoding) * 4000)
        inputs, _ = find_inputs([str(path)], None, IngestConfig())
        ranges = [part for unit in plan_units(inputs, IngestConfig()) for part in unit.ranges]
        assert len(ranges) >= num_ranges
        assert {part.encoding for part in ranges} == {encoding}
        assert (len(ranges) == 1) == (encoding == "cp1251")


@pytest.mark.parametrize("share", [0.15, 0.3, 0.9])
def test_a_russian_text_that_ends_in_french_is_doubted(share: float) -> None:
    texts = []
    for language, encoding, num_characters in (
        ("ru", "cp1251", 50_000 * (1 - share)),
        ("fr", "cp1252", 50_000 * share),
    ):
        num_copies = round(num_characters / len(TEXTS[language]))
        texts.append((TEXTS[language] * num_copies).encode(encoding))
    assert detect(b"".join(texts)).doubt
    assert not detect(texts[0]).doubt
