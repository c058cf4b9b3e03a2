import re
import unicodedata
from dataclasses import replace
from itertools import product

import pytest
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.text.abbreviations import stops_of
from clozeworks.pipeline.text.sentence_joins import join, join_rules_of
from clozeworks.pipeline.text.sentence_rules import (
    ABBREVIATIONS,
    BEFORE_CAPITALS,
    JOINS,
    MISSED_ENDS,
    OWN_INITIALS,
    Rule,
    language_code,
)
from clozeworks.pipeline.text.sentences import LONGEST_CALL, compose, normalise, split_sentences
from hypothesis import given
from hypothesis import strategies as st
from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

from tests.fixtures.sentence_patterns import PATTERNS, count_mis_splits

MARKS = (
    "abc XYZ 12.,;:!?…\"'“”‘’()[]「」。、？！ 다고 は"
    "\u3000\u00a0\t\n\r\x00\x85\u2028\u00ad\u200b\u200d\ufeff\ud800"
)
LANGUAGES = ["en", "ko", "ja", "zh", "de", "simple", "xx", "", "zh-min-nan", "EN_us"]


def kept(text: str) -> str:
    """What must survive, by Unicode's own classes: all but whitespace, controls, surrogates and
    invisible marks.
    """
    invisible = "\u00ad\u180e\u200b\u200e\u200f\ufeff"
    return "".join(
        char
        for char in text
        if not char.isspace()
        and unicodedata.category(char) not in ("Cc", "Cs")
        and char not in invisible
    )


@given(st.lists(st.text(MARKS, max_size=60), max_size=4), st.sampled_from(LANGUAGES))
def test_no_character_is_lost_and_every_sentence_is_normalised(
    paragraphs: list[str], language: str
) -> None:
    sentences = split_sentences(paragraphs, language)
    assert kept("".join(sentences)) == kept("".join(paragraphs))
    for sentence in sentences:
        assert sentence == " ".join(sentence.split()) != ""
        assert not any(unicodedata.category(char) in ("Cc", "Cs") for char in sentence)
        sentence.encode("utf-8")


# How pieces begin and end where rules join them, and where none does.
BEGINNINGS = st.sampled_from(
    [*"AÉa1(,;)」のとが我고를", "The ", '"', '" ', "“I ", "II", "—", "-3.", "I asked.", "...", "১"]
)
ENDINGS = st.one_of(
    st.sampled_from(
        [
            *(" word.", " end?", " No!", " it”.", " 12.", " 2.", " 1990.", " in 1990.", " 9,000."),
            *('?"', "!”", "...", " A.", " C.", " approx.", ' "', " “", "。", "다.", "」", " ১."),
        ]
    ),
    st.sampled_from([f" {word}." for word in sorted(BEFORE_CAPITALS | ABBREVIATIONS["ru"])]),
)
BODIES = st.sampled_from(["", "b", "bc bc bc bc", "가 가가 가가가가"])
# Two only, because the search has to see each place at which anything changes.
PIECES = st.tuples(
    st.builds("{}{}{}".format, BODIES, ENDINGS, st.sampled_from([" ", " ", ""])),
    st.builds("{}{}".format, BEGINNINGS, BODIES),
).map(list)


@given(PIECES, st.sampled_from([*sorted(OWN_INITIALS), "de", "ru", "hi"]))
def test_one_search_sees_all_that_is_to_be_joined(pieces: list[str], language: str) -> None:
    rules = join_rules_of(language)
    # All breaks are candidates.
    thorough = replace(rules, candidates=re.compile(r"\n(?<!\n\n)(?!\n)"))
    lines = "\n".join(pieces)
    assert join(lines, rules) == join(lines, thorough)


@pytest.mark.slow
@given(st.text())
def test_normalise_agrees_with_the_unicode_classes_on_any_text(text: str) -> None:
    line = normalise(text)
    assert line == " ".join(line.split())
    assert not any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in line)
    assert normalise(line) == line


def test_whitespace_and_invisible_characters() -> None:
    assert (
        normalise("\ufeffBer\u00adlin\u3000is\u2028a\r\n\t\x0bcity\x85of\x00 \u200btrees ")
        == "Berlin is a city of trees"
    )
    assert normalise("می\u200cخواهم") == "می\u200cخواهم"
    assert normalise("two  spaces") == "two spaces"
    assert normalise("a hy\u00ad\nphen at a line's end") == "a hyphen at a line's end"


@pytest.mark.parametrize("rule", JOINS, ids=lambda rule: rule.example)
def test_each_rule_joins_its_example(rule: Rule) -> None:
    for language in ["bg", "ru", "it", "en"] if rule.languages == "*" else rule.languages.split():
        text = rule.example.replace("|", "")
        assert split_sentences([text], language) == [text]


@pytest.mark.parametrize("rule", JOINS, ids=lambda rule: rule.example)
def test_no_rule_is_there_for_what_sentencex_does(rule: Rule) -> None:
    languages = ["bg", "ru", "it", "en"] if rule.languages == "*" else rule.languages.split()
    pieces = [
        [piece.strip() for piece in segment(language, rule.example.replace("|", ""))]
        for language in languages
    ]
    assert [piece.strip() for piece in rule.example.split("|")] in pieces


@pytest.mark.parametrize("rule", MISSED_ENDS, ids=lambda rule: rule.example)
def test_each_rule_cuts_its_example(rule: Rule) -> None:
    sentences = [sentence.strip() for sentence in rule.example.split("|")]
    languages = ["lv", "es", "en"] if rule.languages == "*" else rule.languages.split()
    for language in languages:
        assert split_sentences([" ".join(sentences)], language) == sentences
    assert any(len(segment(language, " ".join(sentences))) == 1 for language in languages)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        # A number begins a sentence.
        ("de", "Wir haben ihn sehr genossen.|7 Tage Erholung im Haus am See sind schön."),
        ("de", "Das Essen war gut.|17.45 Uhr hatte ich bestellt."),
        ("de", "Siehe Abb. 3 und Nr. 5 und Bd. 2 vom 5. Mai 1990."),
        ("fi", "Kolme tuntia kului.|12 ihmistä tuli."),
        ("sk", "Jedlo bolo dobré.|5. októbra 1962 odišiel do Ríma."),
        ("kk", "Ол Алматыда туған.|2007 жылы көшіп кетті."),
        ("be", "Ён нарадзіўся ў 1933 г.|47 чалавек атрымалі дыпломы."),
        ("ru", "Он родился в 1933 г. 5 января его крестили."),
        # A paragraph begins with the number of an item.
        ("en", "(2) The contribution is made by the kingdom.|The member is responsible for it."),
        ("de", "(3) Das ist ein Satz.|Hier kommt ein zweiter.|Und ein dritter."),
        ("en", "• It is late.|We must go."),
        # Items of a list within a paragraph; each begins a sentence only after the end of one.
        (
            "de",
            "Es gibt zwei Gruppen: (1) Flamen, die hier wohnen, und (2) Wallonen, auch von hier."
            "|Das Land ist schmal.|Es ist auch lang.",
        ),
        ("en", 'He used the word in his work, "What is Property?" (1840) to name the owners.'),
        ("en", "It has two parts.|(1) Dogs bark.|They run.|(2) Cats do not.|That is all."),
        ("he", "ראו מס. 5 בספר.|זה היה באותה שנת מס.|במידה ונותרים הפסדים."),
        # A bracket holds a sentence.
        ("en", "He was late.|(Had he missed the train?)|But nobody cared."),
        ("pl", "Był spóźniony.|(Debiutował wierszem.)|Nie napisał nic."),
        ("ru", "Он опоздал.|(Он пропустил поезд.)|Но это неважно."),
        ("en", "The palm Astrocaryum vulgare (Mart.) Kuntze is here."),
        ("en", "He worked for Acme (now Acme Corp.) Limited."),
        # An ellipsis.
        ("en", "He could not go on…|One day he left the house."),
        ("hy", "Ընկերներ չունեմ...|Դե, ով կուզենա ընկերություն անե։"),
        ("uk", "Відмовити він не міг і надалі…|Якось уранці він пішов."),
        ("en", "Kant (...) Hegel and [...] Marx are read."),
        # A unit after a number, a word that is not an abbreviation, a number of a king.
        ("ru", "Цена 5 млн руб.|Кандидаты пришли."),
        ("uk", "Збирається близько 11 млн т.|На заводі працюють."),
        ("bg", "Цената е $ 1,5 млн.|Кандидатите са много."),
        ("bg", "Това стана в 5 ч.|Сутринта дойде."),
        ("it", "Lo fece due anni fa.|Precisa la data."),
        ("et", "See on konservatiivne ala.|Eestis oli see nii."),
        ("en", "The gallery has a diversity of art.|Destiny sings well."),
        ("vi", "Đây là một nước ở Đông Nam Á.|Anh ủng hộ ý định."),
        ("sk", "Bol to pápež Ján Pavol II.|Potom odišiel."),
        # Abbreviations.
        ("is", "Ég þakka hv. þm. Pétri H. Blöndal fyrir svarið."),
        ("es", "En el caso BMW v. Gore se dijo mucho."),
        ("ru", "Цена 25 фр. (во Франции) была высокой."),
        # A long quotation in Korean, also one that nothing introduces.
        (
            "ko",
            "그는 “흑표당원들은 오클랜드의 빈민가를 영토로, 경찰을 침입자로 규정하였다."
            "|그들은 지역 사회의 수호를 목적으로 삼았다.”라고 말했다.",
        ),
        (
            "ko",
            "그는 말했다: “흑표당원들은 오클랜드의 빈민가를 영토로, 경찰을 침입자로 규정하였다."
            "|그들은 지역 사회의 수호를 목적으로 삼았다.|그 슬로건은 이목을 모았다.”라고 말했다.",
        ),
        # Who says it, after a dash.
        ("pl", "— Co się stało? — zapytała Anna.|— Nic!"),
        ("es", "—No lo sé. —dijo Ana.|Y se fue."),
        ("fr", "Les hommes meurent.|- si vous y tenez."),
    ],
)
def test_gold(language: str, text: str) -> None:
    sentences = text.split("|")
    assert split_sentences([" ".join(sentences)], language) == sentences


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ru", "Поэты М. Ю. Лермонтов и А. С. Пушкин. Оба писали."),
        ("fr", "Le roi et M. Dupont virent Mme. Foo av. Jean. Puis ils partirent."),
        ("ru", "Завод им. Кирова и пос. Ленино. Он вырос там."),
        ("pl", "Kościół św. Jana i ul. Długa. Potem wrócił."),
        ("de", "Das hl. Land und die geb. Müller. Danach kam er."),
        ("pt", "No séc. XX, na pág. 5. Depois voltou."),
    ],
)
def test_abbreviations_end_no_sentence(language: str, text: str) -> None:
    assert len(split_sentences([text], language)) == 2


@pytest.mark.parametrize(
    "sentences",
    [
        # From novels and Project Gutenberg books.
        ['"What\'s she gone there for?" I asked.', "He did not know."],
        ['"Insufferable to whom?" Nash demanded.'],
        ["“My dear, good soul!” I cried, “this is too delightful! How did you?”"],
        ["“Has Mr. Vholes changed?” Mr. Jarndyce again inquired, looking up."],
        ["'Who?' Lady Maria went on.", "'Him?'"],
        # An answer, a report, another act.
        ['"Who has got your clothes?"', 'Peter replied, "The scarecrow in the garden."'],
        ['"And what then?"', "Mr. Jarndyce said that he condoled with him."],
        ['"Who is it?"', "Nash turned, and went on his way."],
        ['"Who is it?"', "He asked again."],
        ["Was it so?", "I asked him."],
    ],
)
def test_the_tag_of_a_speech_belongs_to_it(sentences: list[str]) -> None:
    assert split_sentences([" ".join(sentences)], "en") == sentences


def test_text_without_capitals_is_cut_where_sentencex_cuts_it() -> None:
    assert split_sentences(["he left . she stayed . who knows ?"], "en") == [
        "he left .",
        "she stayed .",
        "who knows ?",
    ]


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Mr. Smith went to the U.S. Army.", "He came back in 1990.", "Then he left."]),
        ("en", ["It weighs approx. 3 kg.", "That is all."]),
        ("en", ['"Is it so?" he asked.', '"It is!"', "They left."]),
        ("en", ["“You know nothing,” I interrupted.", "“You never did.”"]),
        ("en", ["'Go!' said he.", "'Tis late."]),
        ("ru", ["Да!", "Нет."]),
        ("hi", ["वाह!", "यह अच्छा है।"]),
        ("ko", ["그는 1990. 10. 3. 에 태어났다.", "그리고 갔다."]),
        ("hu", ["Az 2005. okt. 28. volt.", "Ez kb. 40 dollár."]),
        ("it", ["Le schede audio, le schede di rete e così via.", "Alcune schede no."]),
        ("it", ["Il nome DNS e l'IP.", "Ciò non vale per un IP fisso o un IP mobile."]),
        ("kk", ["Ені 1 м. 30 см. биіктігі 20 см.", "Бөлмеде үш қабір бар."]),
        ("lo", ["ບໍ່ມີລະຫັດຜ່ານຖືກພິມເຂົ້າ.", "ກະລຸນາເຮັດຄືນໃໝ່."]),
        ("el", ["- Τι θα πει; ρώτησε ο Αλέξανδρος.", "Τι;", "Όχι."]),
        ("en", ["As for Mr. Will, nobody was fond of him.", "She told Mdlle. Reuter so."]),
        ("en", ["(Being unstable they are rare, and unstable.)", "It was expected for long."]),
        ("en", ['You told me that you would advise me."', "Accordingly, he came."]),
        ("ko", ["산성도는 pH로 나타낸다.", "pH는 7이다."]),
        ("en", ["It is vitamin C.", "The rest is not."]),
        ("ko", ["그는 “나는 모른다.”라고 말했다.", "이는 사실이다."]),
        ("ja", ["彼は「そうだ。」と言った。", "それから行った。"]),
        ("ja", ["「雨が降る。」", "「本が多い。」"]),
        ("ja", ["彼は「さようなら。」", "ところが、彼は帰らなかった。"]),
        ("zh-classical", ["孔子曰。", "學而時習之。"]),
        ("ja", ["彼は去った。", "2003年に帰った。", "「行く。3人で。」と言った（駅。4番）。"]),
        ("zh", ["他走了。", "2003年他来了。"]),
        ("de", ["Er wurde 19.", "Danach kam die 2. Bundesliga.", "Am 5. Mai 1990 ging er."]),
        ("ru", ["В 4 г. до н. э. был г. Москва.", "А. С. Пушкин и М. Ю. Лермонтов писали."]),
    ],
)
def test_boundaries(language: str, sentences: list[str]) -> None:
    separator = "" if language in ("ja", "zh", "zh-classical") else " "
    assert split_sentences([separator.join(sentences)], language) == sentences


def test_a_sentence_never_spans_two_paragraphs() -> None:
    assert split_sentences(["No full stop", "here", "", " \x00 "], "en") == ["No full stop", "here"]


@pytest.mark.slow
def test_a_long_sentence_is_kept_and_unclosed_quotes_take_linear_time() -> None:
    long = "word " * 3000 + "end."
    assert split_sentences([long + " Next."], "en") == [long, "Next."]
    hostile = "“ a. " * (4 * LONGEST_CALL)  # In one call this takes half a minute.
    assert kept("".join(split_sentences([hostile], "en"))) == kept(hostile)


def test_a_paragraph_of_many_calls_is_cut_only_between_sentences() -> None:
    sentences = [
        f"This is sentence number {number} of a very long paragraph." for number in range(2000)
    ]
    assert split_sentences([" ".join(sentences)], "en") == sentences


@pytest.mark.parametrize("language", PATTERNS)
def test_at_most_three_of_a_thousand_ends_are_wrong_in_any_language(language: str) -> None:
    counts = [
        count_mis_splits(lambda text, code: split_sentences([text], code), language, pattern)
        for pattern in PATTERNS[language]
    ]
    assert 1000 * sum(wrong for _, wrong, _ in counts) <= 3 * sum(
        number for number, _, _ in counts
    ), counts


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        # What looks like an initial or abbreviation, and ends a sentence.
        ("hi", ["वह विद्यालय में पढ़ता है.", "फिर वह घर जाता है."]),
        ("gu", ["આ એક ગામ છે.", "એ. પી. જે. અબ્દુલ કલામ વૈજ્ઞાનિક હતા."]),
        ("be", ["Ён нарадзіўся ў 1890 г.", "Памёр у XX ст.", "Потым яго забылі."]),
        ("ar", ["توفي سنة 300 هـ.", "ثم حكم ابنه."]),
        ("lv", ["Tas notika 1990.", "2005. gadā viņš aizgāja."]),
    ],
)
def test_sentences_that_end_like_abbreviations(language: str, sentences: list[str]) -> None:
    assert split_sentences([" ".join(sentences)], language) == sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("no", ["Jeg tar den ut.", "Putter den i kurven."]),
        ("en", ["It was made in May.", "Nobody knew."]),
        ("en", ["She was ill.", "Friends came."]),
        ("en", ["It is 12 ft.", "Water stood in it."]),
        ("es", ["Se ve el mar.", "Nadie viene."]),
        ("sv", ["Han gick ut.", "Sedan kom hon."]),
        ("es", ["Creo que no.", "Ella vino a casa."]),
        ("de", ["Das gefällt mich.", "Danach ging er."]),
        ("bg", ["Струва 25 лв.", "Причината е проста."]),
    ],
)
def test_a_word_like_any_other_ends_a_sentence(language: str, sentences: list[str]) -> None:
    assert split_sentences([" ".join(sentences)], language) == sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["``It rains,'' he said.", "``The road is wet.''", "Nobody came."]),
        ("de", ["„Es regnet“, sagte er.", "„Wir bleiben hier.", "Dann gingen „alle“ fort."]),
        ("fr", ["Il dit : « Il pleut.", "Nous restons.", "Puis « tous » partirent."]),
        ("mt", ["Dan hu 'l bogħod.", "Il-karozza ta' Ġanni hija ħamra.", "Hi telqet."]),
        ("ar", ["قال: ”إنها تمطر.", "سنبقى هنا."]),
        # An elision, not a quotation; nor is what is quoted around it.
        (
            "en",
            ["She'd not seen 'em clean.", "I don't want the cows going at this time o' year."],
        ),
        ("en", ["'Let us get near 'em before it is dark.", "I can smell the trees of the house.'"]),
        ("he", ['היא חוקרת מ"יד בן צבי", וכתבה ספר.', 'הציפורים הן המאמינים והאם "מקריבה" הכל.']),
    ],
)
def test_a_mark_without_its_partner_protects_nothing(language: str, sentences: list[str]) -> None:
    assert split_sentences([" ".join(sentences)], language) == sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        (
            "en",
            [
                '"Well, I went there myself last night.',
                "It rained on me all the way.",
                'I saw nobody," said he.',
            ],
        ),
        ("en", ["He said, “I came here alone. I saw it.”"]),  # short: may be a title
        ("en", ["She said, 'You are jesting. He could not write thus!'", "Then she left."]),
        (
            "en",
            [
                'The song "What Is Love? Baby, Do Not Hurt Me Any More, Because I Love You So" '
                "was a hit."
            ],
        ),
        (
            "en",
            [
                "'I do not know what you mean by that, my dear.",
                "You never told me so before,' said she.",
            ],
        ),
        # After a sentence, with elisions in it, or broken off.
        (
            "en",
            [
                "He looked at me.",
                "'It is a singular case, and does not happen to a youth.",
                "There 's an explanation that covers the whole, I am sure of it.'",
            ],
        ),
        (
            "en",
            [
                '"Yes," said I. "Miss Estella handed her in cake and wine at the coach-window.',
                'And we all had cake and wine on gold plates."',
            ],
        ),
        (
            "en",
            [
                "'I can well understand it, for the Duke had trusty men with him.",
                "There was Sir Patrick Hume of Polwarth--'",
            ],
        ),
        # From novels, with typed dashes.
        (
            "en",
            [
                'He paused, - then continued in a softer tone - "You look afraid of me, dear.',
                'Be assured you never had less cause for terror."',
            ],
        ),
        (
            "en",
            [
                'It was as follows:--"I start to-morrow afternoon,--I hardly know whither.',
                'It may be for years or it may be for ever."',
            ],
        ),
        (
            "fr",
            [
                "«Je suis venu ici tout seul hier soir, mon ami.",
                "Vous ne le saviez donc pas encore?»",
            ],
        ),
        (
            "nl",
            [
                '"Hij is de leider van de beweging, het «Vlaams Belang», sinds vele jaren.',
                'Het heeft geen zin dat te ontkennen."',
            ],
        ),
        (
            "ru",
            [
                "«Я пришёл сюда вчера вечером один, мой друг.",
                "А. С. Пушкин об этом писал друзьям.»",
            ],
        ),
    ],
)
def test_long_quotations_are_cut(language: str, sentences: list[str]) -> None:
    assert split_sentences([" ".join(sentences)], language) == sentences


@pytest.mark.parametrize(
    "text", ["그는 한국어를 썼다.", "Ё́жик в тума́не.", "À l'été, Noël.", "Τι έγινε;", "ড়াকা শহর।"]
)
def test_decomposed_text_is_composed(text: str) -> None:
    decomposed = unicodedata.normalize("NFD", text)
    assert split_sentences([decomposed], "ko") == [unicodedata.normalize("NFC", text)]


def test_a_run_of_combining_marks_is_cut_off() -> None:
    # At once if the time is linear in the length; otherwise it takes minutes.
    text = compose("e" + "\u0301\u0316" * 150_000 + " ende " + "\U0001d165" * 300_000)
    assert text == unicodedata.normalize(
        "NFC", "e" + "\u0301\u0316" * 15 + " ende " + "\U0001d165" * 30
    )
    for num_marks, start in product((29, 30, 31), range(10)):
        marks = compose("x" * start + "\u0316" * num_marks)
        assert marks == "x" * start + "\u0316" * min(num_marks, 30)


def test_language_codes_of_projects() -> None:
    codes = [
        language_code(code)
        for code in ("en", "EN-gb", "zh_min_nan", "be-x-old", "simple", "auto", "", "ltg")
    ]
    assert codes == ["en", "en", "zh", "be", "en", "en", "en", "ltg"]
    codes = ["yue", "lzh", "nan-Latn", "wuu", "gan", "hak", "gsw", "sgs", "vro", "rup"]
    assert [language_code(code) for code in codes] == [*["zh"] * 6, "de", "lt", "et", "ro"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "piece"),
    [
        ("ru", "М. "),
        ("ja", "『a."),
        ("ja", "。1（"),
        ("ko", "Ab?' "),
        ("de", "19. Ab "),
        ("en", ", 'a. B"),
        ("en", ', "A b. '),
        ("mr", "क. "),
    ],
)
def test_hostile_text_is_split_without_loss(language: str, piece: str) -> None:
    # Seconds if the time is linear in the length; a quadratic rule would take many minutes.
    text = piece * (300_000 // len(piece))
    assert kept("".join(split_sentences([text], language))) == kept(text)


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        # Acronyms of two letters a part.
        ("el", ["Το ΠΑ.ΣΟ.Κ. έχασε.", "Ο ΣΥ.ΡΙΖ.Α. κέρδισε.", "Με αυτά, και με άλλα, τελείωσε."]),
        ("ru", ["Партия ПА.СО.К. проиграла.", "Потом она вернулась."]),
        # Units, eras and "and others" end a sentence; a name goes on.
        ("uk", ["Відстань — 19,8 км.", "Поромні переправи діють."]),
        ("uk", ["Це було до н. е.", "Також виділяються інші, а також менші."]),
        ("uk", ["У 44 до н. е. Цезар помер."]),
        ("uk", ["Там є Львів та ін.", "Написав цілий ряд праць."]),
        ("uk", ["У другій пол. XX ст. місто зросло."]),
        ("el", ["Έχει έκταση 2.500 τετρ. χλμ.", "Το καλοκαίρι ζει."]),
        ("el", ["Ήταν το 300 π.Χ.", "Με αυτό ήρθε, με εκείνο έφυγε."]),
        ("el", ["Το 44 π.Χ. Καίσαρας πέθανε."]),
        ("ca", ["Hi ha directoris, fitxers, etc.", "Cada directori en té."]),
        ("en", ["It reached number 1.", "The next reached number 2.", "The last was number 9."]),
        # Initials and letter names.
        ("mr", ["कवी ना. धों. महानोर हे आहेत.", "वि. का. राजवाडे हे होते.", "एच्. एम्. व्ही. ही आहे."]),
        ("mr", ["फक्त पटलाला आकार द्या.", "हे गुणविशेष सारखे आहे."]),
        ("hi", ["माउस बटन छोड़ दें.", "मापनी रीसेट होगी."]),
        ("gu", ["તે વધારે ગરમ થાય તો.", "તમારે તેને સુધારવાની જરૂર પડશે."]),
        ("ko", ['그는 "내가 고자라니!" 하면서 울었다.', "그리고 갔다."]),
        ("ka", ["თქვენი ელ. ფოსტის მისამართი დადასტურებულია.", "გმადლობთ."]),
        # A genitive.
        ("my", ["သင်၏ အသုံးပြုသူအမည်သည် မှန်ကန်သည်။", "ထပ်မံကြိုးစားပါ။"]),
        # Marks that are no quotation marks, or the other ones.
        ("he", ['מידות: בלם – 130X75 מ"מ.', 'גז – 45X130 מ"מ.', "זה הכול."]),
        ("ar", ["هذا ”تعريف المصادر المفتوحة“.", "أي أن هذا النص قديم.", "وقال ”نعم“."]),
        # English.
        ("en", ["It runs from Sault Ste. Marie to Ft. Lauderdale.", "See Vol. III."]),
        (
            "en",
            ["On the sense see p. 9, ed. Camb., and the notes.", "Each house is co-ed.", "Yes."],
        ),
        ("en", ["They belong to a liberal sect.", "He left it."]),
        ("en", ["The island rises to 915 m.", "Santa Clara is smaller."]),
        ("en", ["The U.S. Government has the U.S. Navy.", "It has a government."]),
        ("en", ["He told me all.", "I knew that he told me so.", "He came with me.", "Farewell!"]),
        ("en", ['"Come with me. Farewell," he said.', "I saw it."]),
        # "Them", and "named after".
        ("ru", ["Они пользуются им.", "Это важно, и это верно.", "Это завод им. В. П. Чкалова."]),
        # A short quotation, and another one; not one long quotation.
        (
            "en",
            [
                "'Thank you, sir!' she answered, 'but I couldn't sleep away from home a night.",
                "I am in Greenhow's Charity.'",
            ],
        ),
        # A word, and no abbreviation.
        ("el", ["Ανοίξτε την πατώντας το σύμβολο συν.", "Εάν θέλετε, κλείστε την."]),
        ("vi", ["Biểu mẫu con và mẹ con này có biểu mẫu con.", "Người dùng thấy nó."]),
        ("tr", ["MICROSOFT.FORECAST ve TAHMİN.UY işlevleri vardır.", "Bunlar yenidir."]),
    ],
)
def test_ends_that_readers_found_wrong(language: str, sentences: list[str]) -> None:
    assert split_sentences([" ".join(sentences)], language) == sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        (
            "bn",
            [
                "তিনি বলেন, “আমি কাল রাতে অনেক দূর থেকে একা এখানে এসেছিলাম, আমার বন্ধু।",
                "তুমি তা জানতে না।”",
                "তিনি গেলেন।",
            ],
        ),
        (
            "hi",
            ['उन्होंने कहा कि "मैं कल रात यहाँ अकेला आया था, मित्र।', 'तुम यह बात नहीं जानते थे।"', "वे गए।"],
        ),
        (
            "hy",
            [
                "Նա ասաց. «Ես երեկ գիշեր հեռվից միայնակ եկա այստեղ, իմ սիրելի ընկեր։",
                "Դու դա չգիտեիր»։",
            ],
        ),
        ("mr", ['ते म्हणाले, "मी काल रात्री एकटाच येथे आलो होतो, मित्रा.', 'तुला ते माहीत नव्हते."']),
    ],
)
def test_long_quotations_without_capitals_are_cut(language: str, sentences: list[str]) -> None:
    assert split_sentences([" ".join(sentences)], language) == sentences


def test_words_are_judged_by_their_own_document() -> None:
    paragraph = "He ate a fig. Farewell was said."
    assert len(split_sentences([paragraph], "en")) == 1
    assert len(split_sentences([paragraph, "A fig is sweet, and this fig was ripe."], "en")) == 3


@pytest.mark.slow
def test_a_document_is_asked_about_few_words() -> None:
    # Quadratic if each of the words were searched in the whole text.
    words = "".join(f"x{chr(97 + index % 26) * (index // 26 + 1)}. Abc " for index in range(3000))
    text = words[: 20 * LONGEST_CALL]
    assert kept("".join(split_sentences([text] * 20, "en"))) == kept(text) * 20


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("it", ["Tre anni fa.", "Lui venne a casa."]),
        ("uk", ["Це становить 63 тис.", "Тобто 2 відсотки."]),
        ("de", ["Er sprach von Autos usw.", "Danach ging er."]),
        ("en", ["The gallery has paintings, prints etc.", "They sing well."]),
        ("it", ["Ha scritto al prof. Lucio Bianchi."]),  # a name
        ("de", ["Er arbeitet für die Acme Ltd.", "Danach ging er."]),
        ("de", ["Sie beschäftigt bei Acme Inc. Adam Smith."]),
        ("it", ["Nacque nel 330 a.C.", "Egli morì presto."]),
        ("it", ["Nel 44 a.C. Cesare morì."]),
    ],
)
def test_an_abbreviation_before_a_word_that_begins_sentences_ends_one(
    language: str, sentences: list[str]
):
    assert split_sentences([" ".join(sentences)], language) == sentences


def test_a_users_abbreviations_end_no_sentence():
    file = '[abbreviations]\nlb = "här lëtz. z.b"\n"*" = "zzyx"'
    text = "Den Här. Weber ass do. Et ass Lëtz. Land z.B. Esch. Zzyx. Muller och. Gutt."
    assert len(split_sentences([text], "lb")) > 4
    expected = [
        "Den Här. Weber ass do.",
        "Et ass Lëtz. Land z.B. Esch.",
        "Zzyx. Muller och.",
        "Gutt.",
    ]
    assert split_sentences([text], "lb", file) == expected
    assert split_sentences(["A Zzyx. Muller."], "en", file) == ["A Zzyx. Muller."]
    assert split_sentences(["Den Här. Weber."], "en", file) == ["Den Här.", "Weber."]
    assert split_sentences(["A prozzyx. Muller."], "en", file) == ["A prozzyx.", "Muller."]


def test_all_codes_of_a_language_give_their_abbreviations():
    file = '[abbreviations]\nno = "zzx"\nnb = "zzy"\n"pt-BR" = "zzz"'
    assert split_sentences(["Han Zzx. Ola og Zzy. Kari."], "nb", file) == [
        "Han Zzx. Ola og Zzy. Kari."
    ]
    assert split_sentences(["O Zzz. Maria."], "pt", file) == ["O Zzz. Maria."]


@pytest.mark.parametrize("code", ["no", "nb", "nn"])
def test_norwegian_has_its_rules_by_any_of_its_codes(code: str):
    sentences = ["Han bodde i Oslo, Bergen osv.", "De andre dro.", "Det var 300 f. Kr.", "Han dro."]
    assert split_sentences([" ".join(sentences)], code) == sentences


@pytest.mark.parametrize("file", ["abbreviations = 3", "[other]\nde = 'z'", "[abbreviations"])
def test_a_wrong_file_of_abbreviations_is_named(file: str):
    with pytest.raises(UserError, match="`abbreviations` is not a TOML file of words by language"):
        stops_of(file, "de")
