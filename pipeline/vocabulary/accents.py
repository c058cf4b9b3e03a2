"""Whether to strip accents: decompose text by NFD and drop all nonspacing marks (Mn), as BERT does
with English.

Elsewhere this destroys letters: Korean syllables fall apart into jamo, Japanese "ga" becomes "ka",
Vietnamese loses vowels and tones, the scripts of India and Thailand lose vowel signs, Ukrainian й
and ї become и and і, German "schön" (beautiful) becomes "schon" (already).
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from ..config import VocabConfig
from ..languages import UNKNOWN
from ..manifests import Accents, DocumentsManifest
from ..storage.shards import read_columns, shard_paths

STRIPPED_LANGUAGES = frozenset({"en", "sco", "id", "ms", "sw", "so", "la", "tl"})
"""Languages that are customarily written without accents, except in loans (café), names, and
textbooks (Latin ā).
"""

MIN_TEXT_SHARE = 0.01  # a language with less of the text has no say
MIN_CHANGED_WORDS = 0.01  # of the words of text in an unknown language; English has at most 0.5 %
SAMPLE_CHARACTERS = 2_000_000  # of each language, to find examples in


def decide_accents(config: VocabConfig, documents: str, corpus: DocumentsManifest) -> Accents:
    """Return whether a vocabulary for these documents strips accents, why, and what that damages.

    The options decide, or else the languages with at least `MIN_TEXT_SHARE` of the text.
    """
    if config.strip_accents is False:
        return Accents(strip=False, reason="kept as requested")
    if config.cased and config.strip_accents is None:
        return Accents(strip=False, reason="kept, since the vocabulary is cased")
    shares = _shares(corpus)
    damage = _damage(shares, documents, corpus)
    if config.strip_accents:
        return Accents(strip=True, reason="stripped as requested", damage=damage)
    if damage:
        return Accents(strip=False, reason=f"kept, since stripping them would damage {damage}")
    named = ", ".join(f"{language} ({share:.0%} of the text)" for language, share in shares.items())
    return Accents(strip=True, reason=f"stripped, as is usual in {named}")


def _shares(corpus: DocumentsManifest) -> dict[str, float]:
    """Return the languages that count, with their share of the training text, largest first."""
    characters: Counter[str] = Counter()
    for group in (
        group for shard in corpus.shards if shard.split == "train" for group in shard.groups
    ):
        characters[group.language] += group.characters
    total = max(characters.total(), 1)
    return {
        name: count / total
        for name, count in characters.most_common()
        if count >= MIN_TEXT_SHARE * total
    }


def _damage(shares: dict[str, float], documents: str, corpus: DocumentsManifest) -> str:
    """Return the first language that stripping would damage, with an example; "" if it damages
    none.
    """
    in_doubt = [language for language in shares if language.split("-")[0] not in STRIPPED_LANGUAGES]
    if not in_doubt:
        return ""
    samples = _samples(in_doubt, shard_paths(documents, corpus, "train"))
    for language in in_doubt:
        changed, share = _changed_words(samples[language])
        if language != UNKNOWN or share >= MIN_CHANGED_WORDS:
            example = f", for example {changed} -> {_spelled(changed)}" if changed else ""
            name = "text in an unknown language" if language == UNKNOWN else language
            return f"{name} ({shares[language]:.0%} of the text{example})"
    return ""


def _samples(languages: Sequence[str], paths: Iterable[str]) -> dict[str, list[str]]:
    """Return some sentences of each language."""
    samples: dict[str, list[str]] = {language: [] for language in languages}
    missing = dict.fromkeys(languages, SAMPLE_CHARACTERS)
    for rows in (rows for path in paths for rows in read_columns(path, "language", "sentences")):
        for language, sentences in _by_language(rows):
            if missing.get(language, 0) > 0:
                samples[language].extend(sentences)
                missing[language] -= sum(map(len, sentences))
        if max(missing.values()) <= 0:
            break
    return samples


def _by_language(rows: pa.RecordBatch) -> Iterator[tuple[str, list[str]]]:
    return zip(rows["language"].to_pylist(), rows["sentences"].to_pylist(), strict=True)


def _changed_words(sentences: Iterable[str]) -> tuple[str, float]:
    """Return the most frequent word that stripping changes, and the share of the words that it
    changes.
    """
    counts = Counter(word for sentence in sentences for word in sentence.lower().split())
    changed = Counter(
        {
            word: count
            for word, count in counts.items()
            if not word.isascii() and strip(word) != word
        }
    )
    whole = [word for word, _ in changed.most_common() if word.isalpha() and len(word) > 1]
    return next(iter([*whole, *changed]), ""), changed.total() / max(counts.total(), 1)


def strip(text: str) -> str:
    """Return `text` as BERT's normaliser leaves it.

    >>> strip("Київ"), len(strip("한국"))
    ('Киів', 6)
    """
    return "".join(
        letter
        for letter in unicodedata.normalize("NFD", text)
        if unicodedata.category(letter) != "Mn"
    )


def _spelled(word: str) -> str:
    """Return what is left of a word; parts of letters that a terminal would show as the same
    letter, apart.
    """
    stripped = strip(word)
    return " ".join(stripped) if unicodedata.normalize("NFC", stripped) == word else stripped
