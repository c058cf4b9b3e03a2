"""Summarise a vocabulary in the table at a command's end."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .summary import CommandSummary, state_rows, warn

if TYPE_CHECKING:
    from ..pipeline.manifests import (
        FertilityReport,
        VocabularyManifest,
        VocabularyReport,
        WordPieceReport,
    )

NUM_CHARACTERS = 20
"""Characters left out that are shown."""
BAR_WIDTH = 30
"""With the row's name and figure on one line of 80 characters."""


def summarize_vocabulary(
    command: str, where: str, manifest: "VocabularyManifest"
) -> CommandSummary:
    """Summarise a vocabulary by its manifest; warn if it damages the text."""
    rows = state_rows(manifest)
    if manifest.accents:
        rows.append(("accents", manifest.accents.reason))
        if manifest.accents.damage:
            warn(
                f"--strip-accents damages {manifest.accents.damage}; "
                "give --keep-accents to keep accents"
            )
    rows += _rows(manifest.report)
    return CommandSummary(command, where, rows)


def _rows(report: "VocabularyReport") -> list[tuple[str, str]]:
    learned = report.learned_from
    tokens = f"{report.num_tokens:,}"
    if learned.num_missing:
        tokens += f" ({learned.num_missing:,} fewer than requested: the corpus is small)"
    return [
        ("tokens", tokens),
        ("learned from", f"{learned.num_words:,} distinct words"),
        *_left_out(learned),
        ("on held-out documents", f"{report.validation.num_words:,} words"),
        *held_out_rows(report.validation),
        *size_rows(report.tokens_per_word_by_size),
    ]


def size_rows(tokens_per_word_by_size: Sequence[tuple[int, float]]) -> list[tuple[str, str]]:
    """Return a row for each size of the vocabulary, with a bar; none if there is only one size.

    >>> size_rows([(1000, 2.0), (2000, 1.5)])[1]
    ('… per word with 2,000 tokens', '1.500 ██████████████████████')
    """
    if len(tokens_per_word_by_size) < 2:
        return []
    most = max(tokens_per_word for _, tokens_per_word in tokens_per_word_by_size)
    rows = []
    for size, tokens_per_word in tokens_per_word_by_size:
        bar = "█" * round(BAR_WIDTH * tokens_per_word / max(most, 1))
        rows.append((f"… per word with {size:,} tokens", f"{tokens_per_word:.3f} {bar}"))
    return rows


def _left_out(learned: "WordPieceReport") -> list[tuple[str, str]]:
    """Return rows on words left out as too rare, too long or containing rare characters, if there
    are any.
    """
    counts = {
        "words left out, rare": learned.num_words_rare,
        "words left out, over 100 characters": learned.num_words_long,
        "words left out, rare characters": learned.num_words_alphabet,
    }
    rows = []
    for name, count in counts.items():
        if count:
            rows.append((name, f"{count:,}"))
    characters = learned.alphabet_left_out
    if characters:
        shown = " ".join(characters[:NUM_CHARACTERS])
        if len(characters) > NUM_CHARACTERS:
            shown += " …"
        rows.append(("characters left out", f"{len(characters):,}: {shown}"))
    return rows


def held_out_rows(report: "FertilityReport") -> list[tuple[str, str]]:
    """Return the rows below a heading that names a vocabulary."""
    rarest_tokens = [token for token, _ in report.rarest_tokens]
    return [
        ("… tokens per word", f"{report.tokens_per_word:.3f}"),
        ("… characters per token", f"{report.characters_per_token:.3f}"),
        ("… unknown tokens", f"{report.unknown_share:.3%}"),
        ("… longest tokens", "  ".join(report.longest_tokens)),
        ("… rarest tokens", "  ".join(rarest_tokens)),
        ("… tokens that never occur", f"{report.num_tokens_absent:,}"),
    ]
