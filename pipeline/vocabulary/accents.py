"""Decide whether to strip accents from the text of these languages.

Stripping is what BERT does with English: decompose text by NFD and drop all nonspacing marks (Mn).
Elsewhere this destroys letters: Korean syllables fall apart into jamo, Japanese "ga" becomes "ka",
Vietnamese loses vowels and tones, the scripts of India and Thailand lose vowel signs, Ukrainian й
and ї become и and і, German "schön" (beautiful) becomes "schon" (already).
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from ..config import VocabConfig
from ..languages import UNKNOWN
from ..manifests import Accents, DocumentsManifest
from ..storage.shards import read_columns, shard_paths

STRIPPED_LANGUAGES = frozenset({"en", "sco", "id", "ms", "sw", "so", "la", "tl"})
"""Languages written without accents, except in loans (café), names, and textbooks (Latin ā)."""


def decide_accents(config: VocabConfig, documents: str, corpus: DocumentsManifest) -> Accents:
    """Decide whether to strip accents, by the options or else by the languages; say why."""
    if config.strip_accents is False:
        return Accents(strip=False, reason="kept as requested")
    if config.cased and config.strip_accents is None:
        return Accents(strip=False, reason="kept, since the vocabulary is cased")
    shares = shares_of_languages(corpus)
    damage = _damage(shares, shard_paths(documents, corpus, "train"))
    if config.strip_accents:
        return Accents(strip=True, reason="stripped as requested", damage=damage)
    if damage:
        return Accents(strip=False, reason=f"kept, since stripping them could damage {damage}")
    reasons = []
    named = [_with_share(language, shares) for language in shares if language != UNKNOWN]
    if named:
        reasons.append(f"as is usual in {', '.join(named)}")
    if UNKNOWN in shares:
        reasons.append(f"as it hardly damages {_with_share(UNKNOWN, shares)}")
    return Accents(strip=True, reason=f"stripped, {', and '.join(reasons)}")


def shares_of_languages(corpus: DocumentsManifest) -> dict[str, float]:
    """Return the languages of at least 1% of the training text, largest first, and their share."""
    characters: Counter[str] = Counter()
    for group in corpus.training_groups():
        characters[group.language] += group.characters
    total = max(characters.total(), 1)
    return {
        language: count / total
        for language, count in characters.most_common()
        if count >= 0.01 * total
    }


def _damage(shares: dict[str, float], paths: Iterable[str]) -> str:
    """Return the first language that stripping could damage, and its share; "" if none."""
    for language in shares:
        is_stripped = language.split("-")[0] in STRIPPED_LANGUAGES
        # Rare or not, accents tell words of a named language apart.
        if language != UNKNOWN and not is_stripped:
            return _with_share(language, shares)
    # In English it changes at most 0.5% of the words.
    if UNKNOWN in shares and _changed_share(paths) >= 0.01:
        return _with_share(UNKNOWN, shares)
    return ""


def _with_share(language: str, shares: dict[str, float]) -> str:
    name = "text in an unknown language" if language == UNKNOWN else language
    return f"{name} ({shares[language]:.0%} of the text)"


def _changed_share(paths: Iterable[str]) -> float:
    """Return the share of words that stripping changes where the language is unknown."""
    counts: Counter[str] = Counter()
    missing = 2_000_000
    for path in paths:
        for rows in read_columns(path, "language", "sentences"):
            is_unknown = pa.array(rows["language"].to_numpy(zero_copy_only=False) == UNKNOWN)
            for sentences in rows.filter(is_unknown)["sentences"].to_pylist():
                if missing <= 0:
                    break
                text = " ".join(sentences)
                counts.update(text.lower().split())
                missing -= len(text)
    num_changed = 0
    for word, count in counts.items():
        has_marks = any(unicodedata.category(character) == "Mn" for character in word)
        if has_marks or not unicodedata.is_normalized("NFD", word):
            num_changed += count
    return num_changed / max(counts.total(), 1)
