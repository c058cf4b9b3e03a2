"""Decide whether to strip accents from the text of these languages.

Stripping is what BERT does with English: decompose text by NFD and drop all nonspacing marks (Mn).
Elsewhere this destroys letters: Korean syllables fall apart into jamo, Japanese "ga" becomes "ka",
Vietnamese loses vowels and tones, the scripts of India and Thailand lose vowel signs, Ukrainian й
and ї become и and і, German "schön" (beautiful) becomes "schon" (already).
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..config import VocabConfig
from ..languages import UNKNOWN
from ..manifests import Accents, DocumentsManifest
from ..storage.shards import read_columns, shard_paths

STRIPPED_LANGUAGES = frozenset({"en", "sco", "id", "ms", "sw", "so", "la", "tl"})
"""Languages written without accents, except in loans (café), names, and textbooks (Latin ā)."""

MIN_TEXT_SHARE = 0.01
"""Languages below this share of the text are ignored."""

MIN_CHANGED_WORDS = 0.01
"""Text in an unknown language is damaged if stripping changes this share of its words; in English
it changes at most 0.5%.
"""

SAMPLE_CHARACTERS = 2_000_000
"""Text to read in each language to find an example."""

_UNKNOWN_NAME = "text in an unknown language"
_WORDS_FOR_SCRIPT = 10_000
_KANA = ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")  # Japanese mixes them with Chinese characters


def decide_accents(config: VocabConfig, documents: str, corpus: DocumentsManifest) -> Accents:
    """Decide whether a vocabulary for these documents strips accents; say why, and what it damages.

    The options decide, or else the languages with at least `MIN_TEXT_SHARE` of the text.
    """
    if config.strip_accents is False:
        return Accents(strip=False, reason="kept as requested")
    if config.cased and config.strip_accents is None:
        return Accents(strip=False, reason="kept, since the vocabulary is cased")
    shares = shares_of_languages(corpus)
    damage = _damage(shares, documents, corpus)
    if config.strip_accents:
        return Accents(strip=True, reason="stripped as requested", damage=damage)
    if damage:
        return Accents(strip=False, reason=f"kept, since stripping them would damage {damage}")
    in_doubt = [name for name in _languages_in_doubt(shares) if name != UNKNOWN]
    if in_doubt:
        # No word of its script has any, as in Armenian: stripping would gain nothing either.
        share = shares[in_doubt[0]]
        reason = f"kept, as is safe in {in_doubt[0]} ({share:.0%} of the text)"
        return Accents(strip=False, reason=reason)
    reasons = []
    named = [
        f"{language} ({share:.0%} of the text)"
        for language, share in shares.items()
        if language != UNKNOWN
    ]
    if named:
        reasons.append(f"as is usual in {', '.join(named)}")
    if UNKNOWN in shares:
        share = shares[UNKNOWN]
        reasons.append(f"as it hardly damages {_UNKNOWN_NAME} ({share:.0%} of the text)")
    return Accents(strip=True, reason=f"stripped, {', and '.join(reasons)}")


def shares_of_languages(corpus: DocumentsManifest) -> dict[str, float]:
    """Return the languages that count, with their share of the training text, largest first."""
    characters: Counter[str] = Counter()
    for group in corpus.training_groups():
        characters[group.language] += group.characters
    total = max(characters.total(), 1)
    return {
        language: count / total
        for language, count in characters.most_common()
        if count >= MIN_TEXT_SHARE * total
    }


def _damage(shares: dict[str, float], documents: str, corpus: DocumentsManifest) -> str:
    """Return the first language that stripping would damage, with an example; "" if it damages
    none.
    """
    in_doubt = _languages_in_doubt(shares)
    if not in_doubt:
        return ""
    samples = _samples(in_doubt, shard_paths(documents, corpus, "train"))
    for language in in_doubt:
        changed_share, word = _changed_words(samples[language])
        name = language
        if language == UNKNOWN:
            # Without a name, the share of words with accents decides. With one it does not: rare or
            # not, they tell words apart.
            if changed_share < MIN_CHANGED_WORDS:
                continue
            name = _UNKNOWN_NAME
        if word:
            example = f"for example {word} -> {_show_stripped(word)}"
            return f"{name} ({shares[language]:.0%} of the text, {example})"
    return ""


def _languages_in_doubt(shares: Mapping[str, float]) -> list[str]:
    """Return the languages that are not known to do without accents."""
    return [language for language in shares if language.split("-")[0] not in STRIPPED_LANGUAGES]


def _samples(languages: Sequence[str], paths: Iterable[str]) -> dict[str, list[str]]:
    """Return some sentences of each language: the first `SAMPLE_CHARACTERS`, in whole documents."""
    samples: dict[str, list[str]] = {language: [] for language in languages}
    missing = dict.fromkeys(languages, SAMPLE_CHARACTERS)
    for path in paths:
        for rows in read_columns(path, "language", "sentences"):
            language_column = rows["language"].to_pylist()
            sentences_column = rows["sentences"].to_pylist()
            for language, sentences in zip(language_column, sentences_column, strict=True):
                if missing.get(language, 0) > 0:
                    samples[language].extend(sentences)
                    missing[language] -= sum(map(len, sentences))
            if max(missing.values()) <= 0:
                return samples
    return samples


def _changed_words(sentences: Iterable[str]) -> tuple[float, str]:
    """Return the share of the words that stripping changes, and the most frequent of those in the
    script of most of the text ("" if it changes none of these).
    """
    counts = Counter(word for sentence in sentences for word in sentence.lower().split())
    changed = Counter()
    num_letters: Counter[str] = Counter()
    for word, count in counts.most_common(_WORDS_FOR_SCRIPT):
        num_letters[_script_of(word)] += count * len(word)
    for word, count in counts.items():
        if not word.isascii() and _is_changed(word):
            changed[word] = count
    share = changed.total() / max(counts.total(), 1)
    del num_letters[""]
    main_script = max(num_letters, key=num_letters.__getitem__, default="")
    for word, _ in changed.most_common():
        # A name in another script, such as Greek in Marathi, shows nothing about the language.
        if len(word) > 1 and _script_of(word) == main_script:
            return share, word
    return share, ""


def _script_of(word: str) -> str:
    """Return the script of a word, the first word of the names of its letters; "" if it contains
    anything but letters and their marks, or letters of several scripts.
    """
    scripts = set()
    for character in word:
        category = unicodedata.category(character)
        if category[0] not in "LM":
            return ""
        if category[0] == "L":
            script, _, _ = unicodedata.name(character, "").partition(" ")
            scripts.add("CJK" if script in _KANA else script)
    if len(scripts) != 1:
        return ""
    return scripts.pop()


def strip(text: str) -> str:
    """Return `text` as BERT's normaliser leaves it.

    >>> strip("Київ"), len(strip("한국"))
    ('Киів', 6)
    """
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(letter for letter in decomposed if unicodedata.category(letter) != "Mn")


def _is_changed(word: str) -> bool:
    """Tell whether `strip` changes a word, without doing it."""
    if not unicodedata.is_normalized("NFD", word):
        return True
    return any(unicodedata.category(character) == "Mn" for character in word)


def _show_stripped(word: str) -> str:
    """Return a stripped word as a terminal should show it.

    Decomposed Korean looks like the original until a space separates the parts of its syllables.
    """
    stripped = strip(word)
    if unicodedata.normalize("NFC", stripped) == word:
        return " ".join(stripped)
    return stripped
