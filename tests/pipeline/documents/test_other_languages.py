"""`keep_language`: documents in other languages are left out and counted."""

import json
import random
from pathlib import Path

import pytest
from clozeworks.pipeline.config import IngestConfig, RunOptions
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.documents.scatter import check_languages, identify_language
from clozeworks.pipeline.errors import UserError

ENGLISH = [
    "The harbour of the town was built with stones that fishermen have carried from the hills.",
    "It lies to the west of the old market and the church, and its piers shelter some forty boats.",
    "In winter the ferry does not run, so that letters wait for days and the shops close early.",
    "Visitors who come in May find the island covered by wild flowers.",
]
KOREAN = [
    "지미 카터는 조지아주 섬터 카운티 플레인스 마을에서 태어났다. 조지아 공과대학교를 졸업하였다.",
    "그 후 해군에 들어가 전함과 원자력 잠수함의 승무원으로 일하였다.",
    "1953년 미국 해군 대위로 예편하였고 이후 땅콩과 면화 등을 가꿔 많은 돈을 벌었다.",
    "그의 별명이 땅콩 농부로 알려졌다. "
    "조지아 주 상원의원 선거에서 낙선하나 부정선거였음을 입증하게 되어 당선되었다.",
    "주지사 선거에 낙선하였지만 그 선거가 부정선거였음을 입증하게 되었고 "
    "1971년부터 조지아 주지사로 근무하였다.",
    "대통령이 되기 전 조지아주 상원의원을 두번 연임하였으며 "
    "조지아 지사로 지내면서 미국에 사는 흑인 등용법을 내세웠다.",
]


def test_languages_are_identified_and_unknown_codes_refused():
    assert identify_language(ENGLISH) == "en"
    assert identify_language(KOREAN) == "ko"
    check_languages(["ko", "en"])
    with pytest.raises(UserError, match="`keep_language` korean: it is not among the known codes"):
        check_languages(["ko", "korean"])


def test_the_language_is_identified_by_the_whole_document():
    long = [" ".join(ENGLISH)] * 12  # more characters than the sample has
    assert identify_language(long + KOREAN[:4] * 7) == "ko"
    assert identify_language(KOREAN[:4] * 7 + long) == "ko"


def write_rows(path: Path) -> str:
    draw = random.Random(1)
    rows = [
        {"text": "\n".join([*draw.sample(ENGLISH, 4), f"Its number is {i}."])} for i in range(20)
    ]
    rows += [{"text": "\n".join([*draw.sample(KOREAN, 6), f"{i}번이다."])} for i in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_documents_in_other_languages_are_left_out_and_counted(tmp_path: Path):
    source = write_rows(tmp_path / "rows.jsonl")
    config = IngestConfig(shards=1, validation_share=0.1, keep_language=("ko",))
    manifest = ingest([source], str(tmp_path / "korean"), config, RunOptions(workers=1))
    assert manifest.counts["documents_in_other_languages"] == 20
    assert manifest.examples["documents_in_other_languages"][0] == "jsonl:rows#0 (looks like en)"
    assert manifest.counts["words_left_out_as_documents_in_other_languages"] > 20 * 50
    assert sum(shard.rows for shard in manifest.shards) == 20
    assert "py3langid" in manifest.versions
