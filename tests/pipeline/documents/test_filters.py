"""Filters: each rule on small values, n-grams against a plain implementation, and real prose, which
passes.
"""

import json
import random
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from clozeworks.pipeline.config import IngestConfig, RunOptions
from clozeworks.pipeline.documents import filters
from clozeworks.pipeline.documents.filters import (
    Fault,
    c4_fault,
    c4_lines,
    check_languages,
    gopher_fault,
    has_spaces,
    identify_language,
    ngram_shares,
)
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.documents.scatter import select_lines
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.execution.counters import Counters
from clozeworks.pipeline.sources.reading import read_documents
from clozeworks.pipeline.sources.records import RawDocument
from clozeworks.pipeline.sources.sentences import split_sentences
from hypothesis import given
from hypothesis import strategies as st
from shared_data import DATA, needs_shared_data

ENGLISH = [
    "The harbour of the town was built with stones that fishermen have carried from the hills.",
    "It lies to the west of the old market and the church, and its two piers shelter some forty boats.",
    "In winter the ferry does not run, so that letters wait for days and the shops close early.",
    "Visitors who come in May find the island covered by wild flowers.",
]
KOREAN = [
    "지미 카터는 조지아주 섬터 카운티 플레인스 마을에서 태어났다. 조지아 공과대학교를 졸업하였다.",
    "그 후 해군에 들어가 전함과 원자력 잠수함의 승무원으로 일하였다.",
    "1953년 미국 해군 대위로 예편하였고 이후 땅콩과 면화 등을 가꿔 많은 돈을 벌었다.",
    "그의 별명이 땅콩 농부로 알려졌다. 조지아 주 상원의원 선거에서 낙선하나 부정선거였음을 입증하게 되어 당선되었다.",
    "주지사 선거에 낙선하였지만 그 선거가 부정선거였음을 입증하게 되었고 1971년부터 조지아 주지사로 근무하였다.",
    "대통령이 되기 전 조지아주 상원의원을 두번 연임하였으며 조지아 지사로 지내면서 미국에 사는 흑인 등용법을 내세웠다.",
]


def reason(lines: list[str], tag: str = "en") -> str | None:
    fault = gopher_fault(lines, tag)
    return fault and fault.reason.removeprefix("documents_gopher_")


def test_prose_passes_gopher_in_any_language():
    assert reason(ENGLISH) is None
    assert reason(KOREAN, "ko") is None
    assert (
        reason(["吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"] * 1, "ja")
        is None
    )


@pytest.mark.parametrize(
    "lines, tag, expected",
    [
        (ENGLISH[:2], "en", "words"),
        (["a b c"] + [f"{letter} x y" for letter in "defghijklmnopqrstuvwz"], "en", "mean_word_length"),
        ([f"word-{i}-counterrevolutionary" for i in range(60)], "", "mean_word_length"),
        ([f"{line} # # # #" for line in ENGLISH], "en", "symbols"),
        ([f"... ... {line}" for line in ENGLISH], "en", "symbols"),
        ([f"• {line}" for line in ENGLISH], "en", "bullet_lines"),
        ([*(f"{line} ..." for line in ENGLISH[:2]), *ENGLISH[2:]], "en", "ellipsis_lines"),
        ([*(f"{line}…" for line in ENGLISH[:2]), *ENGLISH[2:]], "en", "ellipsis_lines"),
        ([f"{line} 1,000 2,000 3,000 4,000 5,000 6,000" for line in ENGLISH], "en", "words_with_letters"),
        ([line.replace("the", "de").replace("and", "und").replace("The", "De").replace(" of ", " von ")
          .replace("that", "dat").replace(" with ", " met ").replace("have", "hebben") for line in ENGLISH], "en",
         "stop_words"),
        ([*ENGLISH, "Share.", "Share.", "Share.", "Share."], "en", "repeated_lines"),
        ([*ENGLISH, ENGLISH[1], *"abcdef"], "en", "repeated_line_characters"),
        ([*ENGLISH, "click here " * 20], "en", "top_2_grams"),
        ([*ENGLISH, "please click here now " * 3], "en", "top_4_grams"),
        ([*ENGLISH, f"{ENGLISH[0]} {ENGLISH[1]}"], "en", "repeated_5_grams"),
    ],
)  # fmt: skip
def test_each_rule_of_gopher(lines, tag, expected):
    assert reason(lines, tag) == expected


def test_stop_words_are_asked_of_english_only():
    assert reason(KOREAN, "en") == "stop_words"
    assert reason(KOREAN, "und") is None


def test_a_fault_says_what_was_found():
    assert gopher_fault(ENGLISH[:1]) == Fault("documents_gopher_words", "16")


def plain_shares(words: list[str]) -> dict[int, float]:
    total, found = sum(len(word) + 1 for word in words), {}
    for size in range(2, 11):
        grams = [tuple(words[start : start + size]) for start in range(len(words) - size + 1)]
        if not grams:
            break
        counts = Counter(grams)
        if size <= 4:
            most = max(counts.values())
            length = max(
                sum(len(word) + 1 for word in gram) for gram in grams if counts[gram] == most
            )
            found[size] = most * length / total
            continue
        seen: set[tuple[str, ...]] = set()
        covered: set[int] = set()
        for start, gram in enumerate(grams):
            covered |= set(range(start, start + size)) if gram in seen else set()
            seen.add(gram)
        found[size] = sum(len(words[index]) + 1 for index in covered) / total
    return found


@given(st.lists(st.sampled_from(["a", "bb", "ccc", "d"]), min_size=1, max_size=40))
def test_ngram_shares_are_those_of_a_plain_count(words):
    found, expected = dict(ngram_shares(words)), plain_shares(words)
    assert found == pytest.approx({size: expected[size] for size in found})
    assert all(share == 0 for size, share in expected.items() if size not in found)


def test_scripts_without_spaces_are_recognised():
    assert has_spaces(" ".join(ENGLISH))
    assert has_spaces(" ".join(KOREAN))
    assert not has_spaces("吾輩は猫である。名前はまだ無い。")
    assert not has_spaces("ประเทศไทยเป็นประเทศในเอเชียตะวันออกเฉียงใต้")


def test_c4_keeps_lines_that_end_a_sentence_and_are_not_notices():
    counters = Counters()
    lines = [ENGLISH[0], "Read more", "Yes, it was.", "Please enable JavaScript to read this page.",
             "This site uses cookies, as most sites do.", "“It was a dark night in the town.”"]  # fmt: skip
    assert c4_lines(lines, "web:1", counters) == [lines[0], lines[-1]]
    words = {"c4_lines_without_end": 2, "c4_short_lines": 3, "c4_notices": 7 + 8}
    num_lines = {"c4_lines_without_end": 1, "c4_short_lines": 1, "c4_notices": 2}
    assert (
        counters.counts
        == {f"words_left_out_as_{reason}": count for reason, count in words.items()} | num_lines
    )
    assert counters.examples["c4_short_lines"] == ["web:1: Yes, it was."]
    assert c4_lines(["名前はまだ無い。"], "web:2", counters) == ["名前はまだ無い。"]


@pytest.mark.parametrize(
    "lines, sentences, expected",
    [
        (ENGLISH, ENGLISH, None),
        (ENGLISH, ENGLISH[:2], Fault("documents_c4_sentences", "2 sentences")),
        ([*ENGLISH, "if (x) { y }."], ENGLISH, Fault("documents_c4_curly_bracket", "{")),
        (
            ["Lorem ipsum dolor sit amet.", *ENGLISH],
            ENGLISH,
            Fault("documents_c4_lorem_ipsum", "lorem ipsum"),
        ),
    ],
)
def test_rules_of_c4_on_documents(lines, sentences, expected):
    assert c4_fault(lines, sentences) == expected


def test_languages_are_identified_and_unknown_codes_refused():
    assert identify_language(ENGLISH) == "en"
    assert identify_language(KOREAN) == "ko"
    check_languages(["ko", "en"])
    with pytest.raises(UserError, match="--keep-language korean: it is not among the known codes"):
        check_languages(["ko", "korean"])


def write_rows(path: Path) -> str:
    draw = random.Random(1)
    rows = [
        {"text": "\n".join([*draw.sample(ENGLISH, 4), f"Its number is {i}."])} for i in range(20)
    ]
    rows += [{"text": "\n".join([*draw.sample(KOREAN, 6), f"{i}번이다."])} for i in range(20)]
    rows += [
        {"text": "\n".join([*ENGLISH, *["Share this."] * 4, f"Number {i}."])} for i in range(5)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_ingest_counts_what_it_filters_with_examples(tmp_path):
    source, options = write_rows(tmp_path / "rows.jsonl"), RunOptions(workers=1)
    config = IngestConfig(shards=1, validation_share=0.1, keep_language=("ko",))
    manifest = ingest([source], str(tmp_path / "korean"), config, options)
    assert manifest.counts["documents_in_other_languages"] == 25
    assert manifest.examples["documents_in_other_languages"][0] == "jsonl:rows#0 (looks like en)"
    assert manifest.counts["words_left_out_as_documents_in_other_languages"] > 25 * 50
    assert sum(shard.rows for shard in manifest.shards) == 20
    assert "py3langid" in manifest.versions
    config = IngestConfig(shards=1, validation_share=0.1, quality=("gopher",))
    manifest = ingest([source], str(tmp_path / "gopher"), config, options)
    assert manifest.counts["documents_gopher_repeated_lines"] == 5
    assert manifest.examples["documents_gopher_repeated_lines"][0].endswith("(0.333)")
    assert sum(shard.rows for shard in manifest.shards) == 40
    config = IngestConfig(shards=1, validation_share=0.1, quality=("c4",))
    manifest = ingest([source], str(tmp_path / "c4"), config, options)
    assert manifest.counts["words_left_out_as_c4_short_lines"] == 20 * 4 + 20 * 1 + 5 * (4 * 2 + 2)
    assert "py3langid" not in manifest.versions
    plain = ingest(
        [source], str(tmp_path / "plain"), IngestConfig(shards=1, validation_share=0.1), options
    )
    assert not [
        name for name in plain.counts if "gopher" in name or "c4" in name or "languages" in name
    ]


def test_lines_are_judged_as_they_will_be_written(tmp_path):
    lines = [
        [*ENGLISH, f"Number {number} is the number of it.", "A lone half \ud800"]
        for number in range(10)
    ]
    rows = [json.dumps({"text": "\r\n".join(text)}) for text in lines]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    config = IngestConfig(shards=1, validation_share=0.1, quality=("gopher", "c4"))
    manifest = ingest(
        [str(tmp_path / "rows.jsonl")], str(tmp_path / "out"), config, RunOptions(workers=1)
    )
    assert sum(shard.rows for shard in manifest.shards) == 10
    assert manifest.counts["c4_lines_without_end"] == 10
    assert manifest.examples["c4_lines_without_end"][0] == "jsonl:rows#0: A lone half"
    raw = RawDocument(
        id="1", source="web", title="", language="en", paragraphs=[f"{line} \r" for line in ENGLISH]
    )
    assert len(select_lines(raw, config, Counters())) == len(ENGLISH)


def test_unknown_filters_are_refused():
    with pytest.raises(UserError, match="--quality is gofer, but must be gopher, c4 or gopher,c4"):
        IngestConfig(quality=("gofer",))


@needs_shared_data
@pytest.mark.parametrize(
    "source, tag, most",
    [
        ("wikipedia/enwiki-hf-00000-of-00002.parquet", "en", 0.02),
        ("wikipedia/kowiki-hf-00001.parquet", "ko", 0.02),
        ("books/gutenberg", "en", 0.0),
    ],
)
def test_real_articles_and_books_pass(source, tag, most):
    num_documents = num_faults = num_foreign = 0
    for document in islice(read_documents(str(DATA / source)), 40 if tag == "en" else 200):
        sentences = split_sentences(document.paragraphs, tag)
        if sum(map(len, sentences)) >= 500:
            num_documents += 1
            num_faults += gopher_fault(document.paragraphs, tag) is not None
            num_foreign += identify_language(sentences) != tag
    assert num_documents > 30
    assert num_faults <= most * num_documents
    assert num_foreign == 0


def test_the_model_is_loaded_once(monkeypatch):
    identify_language(ENGLISH)
    before = filters._identifier.cache_info().misses
    identify_language(KOREAN)
    assert filters._identifier.cache_info().misses == before == 1
