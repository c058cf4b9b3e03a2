"""Books of Aozora Bunko, whose form is that of www.aozora.gr.jp/annotation."""

import pytest
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.text.aozora import is_aozora
from clozeworks.pipeline.text.wikitext.repair import GAP

from tests.fixtures.text_files import read_text

RULER = "-" * 55
BOOK = f"""鳥の庭
山田花子

{RULER}
【テキスト中に現れる記号について】

《》：ルビ
（例）明地《あきち》
{RULER}

［＃３字下げ］一［＃「一」は中見出し］

　遠い｜田舎町《いなかまち》の夏は長い。
　※［＃「けものへん＋苗」、第3水準1-87-64］と※［＃「山／（薩）」、U+5D9F、1-2］はます／＼眠った［＃「眠」に傍点］。
　※［＃「金＋堂」］が鳴った。
　※［＃1、第4水準2-99-99］や※［＃2、U+D800］が鳴った。
［＃改ページ］

底本：「作品集」北書房
　　　1970（昭和45）年6月15日発行
青空文庫作成ファイル：
このファイルは、青空文庫で作られました。入力したのは、皆さんです。
"""
WHOLE = ["遠い田舎町の夏は長い。", "燄と嶟はます〳〵眠った。"]
PROSE = [*WHOLE, f"{GAP}が鳴った。", f"{GAP}や�が鳴った。"]


def test_a_book_is_its_prose_and_what_is_left_out_is_counted() -> None:
    counters = Counters()
    (document,) = read_text(BOOK, counters)
    assert (document.title, document.language) == ("鳥の庭", "ja")
    assert [paragraph.strip() for paragraph in document.paragraphs] == PROSE
    assert counters.counts["words_left_out_as_boilerplate"]
    assert counters.counts["words_left_out_as_marks"]


def test_a_second_book_of_a_file_is_read() -> None:
    (document,) = read_text(BOOK + BOOK)
    assert [paragraph.strip() for paragraph in document.paragraphs] == PROSE * 2


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("庭《にわ》に出た。\n［＃改ページ］", True),
        ("庭に出た。\n底本：「作品集」\n青空文庫作成ファイル：", True),
        ("他读了《红楼梦》和《西游记》。", False),
        ("底本：「作品集」", False),
    ],
)
def test_the_form_tells_whose_book_it_is(head: str, expected: bool) -> None:
    assert is_aozora(head) == expected
