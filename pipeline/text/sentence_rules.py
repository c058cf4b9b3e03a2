"""List where sentencex splits too eagerly, and where it does not split, by language.

- `JOINS`: patterns at which two pieces are one sentence;
- `ABBREVIATIONS`: words whose full stop does not end a sentence;
- `MISSED_ENDS`: patterns at which one piece is two sentences;
- `FINAL_WORDS`: words as short as an initial that do end sentences;
- `NO_ENDS`: punctuation at which sentencex splits, and which does not end a sentence in a language;
- `CUTS`: ends of sentences that it does not know;
- `endings_of`: abbreviations that often end a sentence.

The words are in ``sentence_words.toml``, which says where they come from. `benchmarks.sentences`
measures the result.
"""

import re
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, toml

from ..languages import language_tag
from .wikitext.names import language_labels

# Languages that sentencex does not know are split by the rules of another.
_RULES_OF = {
    "auto": "en",
    "gan": "zh",
    "gsw": "de",
    "hak": "zh",
    "lzh": "zh",
    "nan": "zh",
    "nds-nl": "nl",
    "rup": "ro",
    "sgs": "lt",
    "und": "en",
    "vro": "et",
    "wuu": "zh",
    "yue": "zh",
}


class Rule(NamedTuple):
    """A place in a text, where two pieces are one sentence, or a piece is two.

    The part before it ends with `before`, the part after it begins with `after`, without the blank.
    Both are regular expressions.
    """

    languages: str
    """Codes of the languages of the rule, or ``*`` for all."""
    before: str
    after: str
    example: str
    """Real text; ``|`` marks the place."""

    def holds_in(self, language: str) -> bool:
        """Return whether this is a rule of a language."""
        return self.languages == "*" or language in self.languages.split()


def language_code(language: str) -> str:
    """Return the code of `language` in the rules, as in BCP 47 without region or script.

    >>> [language_code(code) for code in ("en_GB", "simple", "zh-yue", "ko")]
    ['en', 'en', 'zh', 'ko']
    """
    tag = language_tag(language)
    code, _, _ = tag.partition("-")
    return _RULES_OF.get(tag) or _RULES_OF.get(code, code)


def ranges_of(characters: Iterable[str]) -> str:
    """Return characters, in order, as they are written between the brackets of a pattern: one by
    one, `re` would take milliseconds to compile the thousands of some scripts.

    >>> ranges_of("abcdxy")
    'a-dxy'
    """
    ranges: list[str] = []
    # Neighbours are as far from their places in the list as the first of them.
    for _, neighbours in groupby(enumerate(characters), lambda item: ord(item[1]) - item[0]):
        run = [character for _, character in neighbours]
        if len(run) > 2:
            ranges.append(f"{run[0]}-{run[-1]}")
        else:
            ranges += run
    return "".join(ranges)


_QUOTE_END = r"[\"'”’」』》)）]"
# Words that begin a sentence although their first letter is one of the particles that continue it.
_JA_NEW_SENTENCE = (
    "ところ|とても|とにかく|とくに|とはいえ|なお|なぜ|なんと|ならば|でも|では、|のち|はじめ|もし|もちろん|もっと|"
    "にもかか|かつて|かれ|やがて|やっと|やはり"
)

LAST_CASED = "\u058f"
LOWER_CASE = ranges_of(filter(str.islower, map(chr, range(0x590))))
UPPER_CASE = ranges_of(filter(str.isupper, map(chr, range(0x590))))
SMALL_LETTER = f"[{LOWER_CASE}]"
_DE_NEW_SENTENCE = (
    r"(?:D(?:er|ie|as|em|en|ort|ann|a|anach|abei|amit|iese\w*)|E[rs]|Sie|I[mn]|A[mnb]|"
    r"Auf|Aus|Mit|Nach|Bei|Beim|Seit\w*|Ein\w*|Vo[mnr]|Zu[mr]?|Auch|Für|Als|Ab|Unter|Über|"
    r"Während|Sein\w*|Ihre?\w*|So|Wegen|Heute|Später|Hier)\b"
)

# Who says the question or exclamation before.
_EN_SPEAKER = (
    r"(?:I|(?:(?:Mr|Mrs|Miss|Dr|Sir|Lady|Lord|Aunt|Uncle|Captain|Madame)\.? )?"
    r"(?!He|She|It|We|You|They|The|This|That|Nobody|Everybody|Then|And|But)[A-Z]\w+(?: [A-Z]\w+)?)"
)
# Verbs that follow [?!]["”’] at least 12 times in 178 books, and mostly as a tag.
_EN_SAID = (
    r" (?:\w+ly |had |then |again )?"
    r"(?:(?:answered|asked|cried|declared|demanded|echoed|ejaculated|exclaimed|gasped|groaned"
    r"|inquired|enquired|interrupted|murmured|muttered|protested|queried|questioned|remarked"
    r"|repeated|replied|said|shouted|suggested|whispered)\b"
    r"|(?:added|agreed|assented|began|continued|observed|persisted|pursued|returned|went on)"
    r"(?=[,.;:]))"
)
# "Peter replied, "No."" answers the speech before, "Mary said that …" tells more.
_EN_NEW_SPEECH = r" that\b|[^\"“‘.]{0,20}[,:] [\"“‘'][A-Z]"

# In these languages sentencex never ends a sentence before a number.
_NUMBERS_CONTINUE = "ca oc cs da de als bar lb nds fi kk sk"

JOINS = (
    Rule("*", "", r"\W+$", "Isn't it grand any more.'|\""),
    Rule(
        "*",
        "",
        r"[,;:)\]}/、，；：」』）】]",
        "the entries 2 −2 8 −92...| , is the double of the first",
    ),
    Rule("*", r"^\W*\d+(?:\.\d+){0,8}\W*", "", "2.| A number alone is not a sentence."),
    Rule(
        "*",
        rf"(?:[?!…]|\.\.|[\d{UPPER_CASE}{LOWER_CASE}]\.)['\"”“’)\]»]*",
        SMALL_LETTER,
        "Още през 1 век пр.| н.| е.| от римляните.",
    ),
    # Who says a speech, after a dash. A list may have a hyphen after a full stop: "… men. - if …".
    Rule(
        "*",
        r"[?!…][.?!…]*['\"”“’)\]»]*",
        f"(?:[-–—―]|--) ?{SMALL_LETTER}",
        "- Co się stało?| - zapytała Anna.",
    ),
    Rule("*", r"\.['\"”“’)\]»]*", f"(?:[–—―]|--) ?{SMALL_LETTER}", "—No lo sé.| —dijo Ana."),
    Rule(
        "*",
        rf"(?:^|[\s(.-])[{UPPER_CASE}{LOWER_CASE}]\.",
        rf"(?<! \n)[{UPPER_CASE}º-]",
        "Nel 44 a.|C.| e poi.",
    ),
    Rule(
        "*",
        rf"[{UPPER_CASE}]\.",
        rf"(?<! \n)[{UPPER_CASE}]+(?![{LOWER_CASE}])",
        "Το ΠΑ.|ΣΟ.|Κ έχασε τις εκλογές.",
    ),
    Rule("*", r"(?![0-9])\d\.", r"(?![0-9])\d", "তিনি ২৭.| ৩ দিনে কাজ শেষ করেন।"),
    Rule(
        "*",
        r"(?:^|\s)\d{1,2}\.",
        r"[-–]\d{1,2}\.",
        "Uoraišu azara piļs ir 9.| -10.gs latgaļu piļs.",
    ),
    Rule("*", r"\w\.", r"(?<! \n)[-–][^\W_]", "A Mabetex Kft.|-t ő alapította."),
    Rule("lv ltg", r"(?:^|\s)\d{1,2}\.", rf"(?<! \n)[{UPPER_CASE}]", "Šī 9.|Saeima ir jāatlaiž."),
    # A Greek question ends with a semicolon.
    Rule("el pnt", r";['\"”’»)]*", SMALL_LETTER, "- Τι θα πει;| ρώτησε ο Αλέξανδρος."),
    Rule(
        "en",
        r"\b[Vv]ols?\.",
        r"[IVXLC]+\b",
        "A Short History of the World in Two Volumes, Vol.| II.",
    ),
    Rule(
        "en",
        r"\b(?:Ste|Sta|Ft|Mr|Mrs|Messrs|Mdlle|Mdme|(?<!-)ed)\.",
        f"[{UPPER_CASE}]",
        "It runs from Sault Ste.| Marie to Sudbury.",
    ),
    Rule(
        "en",
        r"\b(?:subsp|ssp|var|ser|subg)\.",
        r"[\"“'‘A-Za-z]",
        'The fruits from "Prunus dulcis" var.| "amara" are always bitter.',
    ),
    Rule(
        "en",
        "[?!][\"'”’] ",
        f"{_EN_SPEAKER}{_EN_SAID}(?!{_EN_NEW_SPEECH})",
        '"Where is it?"| Peter asked.',
    ),
    Rule(
        "hi",
        "[?!।][\"'”’] ",
        r"[^।?!\"“]{1,40}(?:पूछा|कहा|बोला|बोली|बोले|चिल्लाया|चिल्लाई)[।.]",
        '"क्या हुआ?"| पत्नी ने पूछा।',
    ),
    Rule(
        "mr",
        "[?!][\"'”’] ",
        r"[^.?!\"“]{1,40}(?:विचारले|विचारलं|म्हणाला|म्हणाली|म्हणाले|ओरडला|ओरडली)\.",
        '"काय झालं?"| बायकोने विचारले.',
    ),
    Rule(
        "tr",
        "[?!][\"'”’] ",
        r"[^.?!\"“]{1,40}(?:sordu|dedi|bağırdı|fısıldadı|mırıldandı|seslendi|haykırdı|yanıtladı)[.,]",
        '"Ne oldu?"| Kadın sordu.',
    ),
    Rule(
        "ar arz",
        "[؟?!][\"'”’»] ",
        "(?:سأل|سألت|سألها|سأله|قال|قالت|صاح|صاحت|هتف|هتفت|همس|همست|أجاب|أجابت|تساءل|تساءلت)"
        r"\b[^:«\"“]{0,60}[.،]",
        "«ماذا حدث؟»| سأل أحمد.",
    ),
    Rule(
        "ka",
        r"[?!…]",
        "[-–—] ?(?:იკითხა|ჰკითხა|თქვა|უთხრა|უპასუხა|მიუგო|დაიყვირა|წამოიძახა|დაიძახა)",
        "- რა მოხდა?| - იკითხა ანამ.",
    ),
    # A Roman number behind a name may end a sentence.
    Rule(
        "az cs da de fi hr hu is lv nb nn pl sh sk sl tr",
        rf"(?:^(?:\w{{1,3}} )?|(?<![^\s(]){SMALL_LETTER}\w* )[IVXLC]+\.",
        f"[{UPPER_CASE}]",
        "A II.| Rákóczi Ferenc Gimnázium régi.",
    ),
    Rule("cs da de nb nn pl sk sl", r"(?:^|\s)\d+\.", r"[IVX]{2,}\b", "Od lat 60.| XIX wieku."),
    # No sentence yet: "In the year 1640".
    Rule(
        "be bg bs hr hu lt mk pl ru sh sl sr uk",
        rf"^(?:[^\W\d_]+ ){{0,2}}\d+(?: {SMALL_LETTER})?\.",
        f"[{UPPER_CASE}]",
        "Leta 1640.| Friderik je prevzel oblast.",
    ),
    Rule("*", r"(?:^|\s)1\.", r"[FSV][A-Z]{1,3}\b", "Gioca con il 1.| FC Union Berlin."),
    Rule(
        "de gsw nds",
        r"(?:^|[^\d] )[a-zü]\.",
        f"[{UPPER_CASE}]",
        "Der Gipfel liegt 2962 m ü.| NHN an der Grenze.",
    ),
    Rule("*", r"\d\.", "§", "A törvény 5.| §-a szerint."),
    Rule(
        "*",
        r"\b\d{1,2}\.",
        r"(?:Januar|Februar|März|Mai|Juni|Juli|Oktober|Dezember)\b",
        "Gaten Straße des 17.| Juni.",
    ),
    Rule(
        "en",
        r"\b[ap]\.m\.",
        r"(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|[A-Z]{1,3}T)\b",
        "It voted at 5 p.m.| Friday.",
    ),
    Rule(
        "de",
        r"(?:^|[\s(])\d{1,3}\.",
        f"(?!{_DE_NEW_SENTENCE})[A-ZÄÖÜ]",
        "Im 19.| Jahrhundert war es so.",
    ),
    Rule(
        "ja",
        _QUOTE_END,
        f"(?!{_JA_NEW_SENTENCE})[とのなはをにでもがやへか（]|って",
        "彼は「そうだ。」|と言った。",
    ),
    Rule("ja zh", r"[「『][^」』\n]*", r"[^「『\n]{0,19}[」』]", "『Dr.|スランプ』の連載を開始。"),
    Rule("ja zh", r"[A-Za-z](?:\.|!)|\d\.", r"[^「『（\s]", "日本のYahoo!|カテゴリに登録される。"),
    Rule("ko", r"(?:^|[\s(~-])\d{1,4}\.|\d\.{3}", "", "그는 1990.| 10.| 3.| 에 태어났다."),
    Rule(
        "ko",
        rf"(?:[?!]|{_QUOTE_END})",
        r"['\"’”]?(?:(?:이?라(?:고|는|며|면서|던)?|이?란|고|는|며|면서|하고|하며|하면서|등|와|과|을|를|의|이다)"
        r"[\s,.도만]|했|한다|하였|하여)",
        '전권을 맡겨 달라."|고 요청하였다.',
    ),
)


_CLOSERS = r"[\"'”’»)\]]*"
_OPENERS = r"[\"“‘'«„(\[¿¡—–-]* ?"

MISSED_ENDS = (
    Rule(
        "*",
        rf"[^\W\d_]{_CLOSERS} ?(?:…|\.\.\.){_CLOSERS}",
        # English "I" does not tell.
        rf"{_OPENERS}(?!I\b)[{UPPER_CASE}]",
        "Viņa klauvēja pie durvīm…| No atmiņas izgaisušas beigas.",
    ),
    # A bracket with several words, or between sentences: not "Astrocaryum (Mart.) Kuntze".
    Rule(
        "*",
        r"[^()]{3} (?P<word>[^\W\d_]{2,})[.!?]\)",
        rf"{_OPENERS}[{UPPER_CASE}]",
        "(He had missed the train.)| But nobody cared.",
    ),
    Rule(
        "*",
        r"^ ?\((?P<word>[^\W\d_]{4,})[.!?]\)",
        rf"{_OPENERS}[{UPPER_CASE}]",
        "(Laughter.)| There is a painting on the wall.",
    ),
    Rule(
        _NUMBERS_CONTINUE,
        rf"(?P<word>[^\W\d_]{{3,}}){_CLOSERS}[.!?]{_CLOSERS}",
        r"\d",
        "Das Essen war gut.| 12 Personen kamen.",
    ),
    Rule(
        "be bg ru uk",
        r"\b\d{4} г\.",
        # Not before a date: "5 января".
        r"\d+ [а-яіў]{5,}\b(?<!аря)(?<!реля)(?<!уста)(?<!бря)(?<!ари)(?<!рил)(?<!уст)(?<!ври)",
        "Он родился в 1933 г.| 47 человек получили дипломы.",
    ),
)
"""The group ``word`` must not be an abbreviation."""


class _SentenceWords(Struct, frozen=True):
    """The content of ``sentence_words.toml``: words by languages.

    Codes and words are separated by white space; phrases are without their last full stop.
    """

    abbreviations: dict[str, str]
    before_numbers: dict[str, str]
    final_words: dict[str, str]
    ordinary_words: dict[str, str]
    openers: dict[str, str]
    units: dict[str, str]
    others: dict[str, tuple[str, ...]]
    eras: dict[str, tuple[str, ...]]
    after_names: str


def _by_language(table: dict[str, str]) -> dict[str, frozenset[str]]:
    words_of: dict[str, frozenset[str]] = {}
    for languages, words in table.items():
        for language in languages.split():
            words_of[language] = frozenset(words.split())
    return words_of


_WORDS = toml.decode(
    Path(__file__).with_name("sentence_words.toml").read_bytes(), type=_SentenceWords
)

ABBREVIATIONS = _by_language(_WORDS.abbreviations)
"""In lower case; before a capital, they may end a sentence after a number ("in 1890 г. Later")."""

BEFORE_NUMBERS = _by_language(_WORDS.before_numbers)
"""Abbreviations before a number, in languages in which numbers may begin a sentence."""

AFTER_NAMES = frozenset(_WORDS.after_names.split())
"""Abbreviations in any language, with a capital as names have, that no name follows."""

SYLLABIC = frozenset(("cs", "sk", "sl", "hr", "bs", "sh", "sr", "mk", "cy"))
"""Languages in which words, such as "vrh", have no vowel."""

FINAL_WORDS = _by_language(_WORDS.final_words)
"""Verbs and particles of one syllable, which are not initials."""

ORDINARY_WORDS = _by_language(_WORDS.ordinary_words)
"""Words that sentencex takes for abbreviations, with a capital or without."""

OPENERS = _by_language(_WORDS.openers)
"""With a capital: words that begin a sentence after an abbreviation in lower case."""

BEFORE_CAPITALS = frozenset(
    (
        *("Ft", "Mdlle", "Mdme", "Messrs", "Mr", "Mrs", "Sta", "Ste"),
        *("Vol", "Vols", "vol", "vols", "ed"),
        *("ser", "ssp", "subg", "subsp", "var", "a.m", "p.m"),
    )
)
"""English abbreviations that sentencex lacks, before the capital of a name or a Roman numeral."""

OWN_INITIALS = frozenset(("en", "ko", "ja", "zh"))
"""Languages without initials, or in which sentencex joins them itself ("vitamin C. The" is two)."""

ENDS = {
    **dict.fromkeys(("hi", "mr", "ne", "mai", "bho", "sa", "new", "or", "pa"), "।॥"),
    **dict.fromkeys(("bn", "as", "bpy"), "।৷"),
    **dict.fromkeys(("ar", "ary", "arz", "fa", "ckb"), "؟"),
    **dict.fromkeys(("ur", "pnb", "ps"), "۔؟"),
    **dict.fromkeys(("hy", "hyw"), "։"),
    **dict.fromkeys(("am", "ti"), "።"),
    **dict.fromkeys(("my", "shn", "mnw"), "။"),
}
"""Marks besides ``.``, ``!`` and ``?`` that end a sentence, at which quotations are cut."""

NO_ENDS = {
    **dict.fromkeys(("hy", "hyw"), "․.՜՞"),
    **dict.fromkeys(("km", "th", "bo", "dz"), "."),
    **dict.fromkeys(("my", "shn", "mnw"), ".၊၏"),
}
"""Marks at which sentencex splits, and which do not end a sentence.

The Burmese ၏ is a genitive; where it is the verb that ends a sentence, ။ follows.
"""

GERSHAYIM = frozenset(("he", "yi"))
"""Languages whose abbreviations are typed with a quotation mark: 130 מ"מ."""

MIRRORED_QUOTES = frozenset(("ar", "ary", "arz", "ckb", "fa", "ps", "ur"))
"""Languages, written from right to left, in which ” opens a quotation in some texts."""

YEARS_END = frozenset(("ar", "ary", "arz", "he"))
"""Languages without capitals in which a year and its era's abbreviation often end a sentence."""

# sentencex does not split after 。 if a digit follows: "…がある。2003年には…" stays one piece.
# Bengali is often typed with the currency sign ৷ instead of the danda ।. sentencex does not know
# the end of a Khmer sentence.
CUTS = {
    **dict.fromkeys(("ja", "zh"), re.compile("(?<=[。！？])(?=[0-9０-９])|[「『（(“」』）)”]")),
    **dict.fromkeys(("bn", "as", "bpy"), re.compile(r"(?<=৷)(?!\W*$)|[(“)”]")),
    "km": re.compile(r"(?<=[។៕])(?!\W*$)|[(“«)”»]"),
}


def language_abbreviations(language: str) -> frozenset[str]:
    """Return the abbreviated names of languages that a Wikipedia puts before foreign text.

    >>> "niem" in language_abbreviations("pl")
    True
    """
    labels = language_labels().get(language, {}).values()
    return frozenset(label.rstrip(" .") for label in labels if label.endswith(". "))


class Endings(NamedTuple):
    """Words with a full stop that end a sentence before a capital, without that full stop."""

    always: re.Pattern[str]
    """Units after a number, and "and others"."""
    unless_name: re.Pattern[str]
    """Eras and the like: "44 до н. е. Також" is cut, "44 до н. е. Цезар" is not."""
    ordinary_words: frozenset[str]
    """Those of `ORDINARY_WORDS`."""
    openers: frozenset[str]
    """Those of `OPENERS`: what follows, whatever the word."""
    last_words: frozenset[str]
    """The letters at the end of each, so that a pattern is only tried where it may match."""


_NUMBER = r"(?:\d|(?:млн|млрд|тыс|тис|хил)\.?|τετρ\.|кв\.|куб\.|sq|square|cubic)"


@cache
def endings_of(language: str) -> Endings:
    """Return the endings of a language, by what the tables list for it."""
    units = _UNITS.get(language, _UNITS["*"])
    ordinary_words = ORDINARY_WORDS.get(language, frozenset())
    others = _phrases(_WORDS.others, language)
    eras = _phrases(_WORDS.eras, language)
    units_pattern = "|".join(map(re.escape, sorted(units)))
    return Endings(
        always=re.compile(
            rf"{_NUMBER}[ \u00a0]?(?:{units_pattern})[²³]?$|(?<!\w)(?:{_alternatives(others)})$"
        ),
        unless_name=re.compile(rf"(?<!\w)(?:{_alternatives(eras)})$"),
        ordinary_words=ordinary_words,
        openers=OPENERS.get(language, frozenset()),
        last_words=frozenset(map(_last_word, (*units, *others, *eras))) | ordinary_words,
    )


def _last_word(phrase: str) -> str:
    return re.split(r"[\W\d_]", phrase)[-1]


def _phrases(table: dict[str, tuple[str, ...]], language: str) -> tuple[str, ...]:
    for languages, phrases in table.items():
        if language in languages.split():
            return phrases
    return ()


def _alternatives(phrases: Iterable[str]) -> str:
    """Return a pattern of phrases, with or without their spaces; of nothing if there are none."""
    return "|".join(re.escape(phrase).replace("\\ ", " ?") for phrase in phrases) or "(?!)"


_UNITS = _by_language(_WORDS.units)

LAST_WORDS = frozenset(
    _last_word(phrase)
    for phrases in (*_UNITS.values(), *_WORDS.others.values(), *_WORDS.eras.values())
    for phrase in phrases
)
"""The `Endings.last_words` of all languages."""
