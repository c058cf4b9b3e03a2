"""``clozeworks vocab``."""

from typing import TYPE_CHECKING, Any

import click

from ..pipeline.config import RunOptions, VocabConfig
from .options import GroupedCommand, config_options, make_config
from .summary import CommandSummary, state_rows, summarize_dry_run, warn
from .terminal import data_stage_terminal

if TYPE_CHECKING:
    from ..pipeline.manifests import FertilityReport, VocabularyReport, WordPieceReport

NUM_CHARACTERS = 20


@click.command(cls=GroupedCommand)
@click.argument("documents", type=click.Path())
@click.option(
    "--output",
    type=click.Path(),
    required=True,
    metavar="VOCAB",
    help="Directory to write the vocabulary to.",
)
@click.option(
    "--compare",
    type=click.Path(),
    multiple=True,
    metavar="OTHER",
    help="Also measure this vocabulary: a directory, vocab.txt or tokenizer.json. Repeatable.",
)
@config_options(VocabConfig, RunOptions)
@click.pass_context
def vocab(
    ctx: click.Context, documents: str, output: str, compare: tuple[str, ...], **values: Any
) -> CommandSummary:
    """Learn a WordPiece vocabulary from the words in DOCUMENTS; every run gives the same one.

    Options after -- go to Apache Beam.
    """
    from ..pipeline.vocabulary.pipeline import (
        estimate_learn_vocabulary,
        learn_vocabulary,
        measure_vocabulary,
    )
    from ..pipeline.vocabulary.vocabulary import read_vocabulary

    for other in compare:  # report a wrong name before the work
        read_vocabulary(other)
    config = make_config(VocabConfig, values)
    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    if options.dry_run:
        estimate = estimate_learn_vocabulary(documents, output, config, options)
        return summarize_dry_run("vocab", output, estimate)
    with data_stage_terminal(options.verbose) as progress:
        manifest = learn_vocabulary(documents, output, config, options, progress)
    rows = state_rows(manifest)
    if accents := manifest.accents:
        rows.append(("accents", accents.reason))
        if accents.damage:
            warn(f"--strip-accents damages {accents.damage}; give --keep-accents to keep accents")
    rows += _rows(manifest.report)
    for other in compare:
        measured = measure_vocabulary(documents, other)
        rows.append(("compared with", other))
        rows += _held_out(measured)
    return CommandSummary("vocab", output, rows)


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
        *_held_out(report.validation),
    ]


def _left_out(learned: "WordPieceReport") -> list[tuple[str, str]]:
    """Return rows on words left out as too rare, too long or containing rare characters, if there
    are any.
    """
    counts = {
        "words left out, rare": learned.num_words_rare,
        "words left out, over 100 characters": learned.num_words_long,
        "words left out, rare characters": learned.num_words_alphabet,
    }
    rows = [(name, f"{count:,}") for name, count in counts.items() if count]
    characters = learned.alphabet_left_out
    if characters:
        shown = " ".join(characters[:NUM_CHARACTERS])
        if len(characters) > NUM_CHARACTERS:
            shown += " …"
        rows.append(("characters left out", f"{len(characters):,}: {shown}"))
    return rows


def _held_out(report: "FertilityReport") -> list[tuple[str, str]]:
    """Return the rows below a heading that names a vocabulary."""
    return [
        ("… tokens per word", f"{report.tokens_per_word:.3f}"),
        ("… unknown tokens", f"{report.unknown_share:.3%}"),
        ("… longest tokens", "  ".join(report.longest_tokens)),
        ("… rarest tokens", "  ".join(token for token, _ in report.rarest_tokens)),
        ("… tokens that never occur", f"{report.num_tokens_absent:,}"),
    ]
