"""``clozeworks vocab``."""

from typing import Any

import click

from ..pipeline.config import RunOptions, VocabConfig
from .made import Made
from .options import config_options, make_config


@click.command()
@click.argument("documents")
@click.option("--output", required=True, metavar="VOCAB", help="Directory to write the vocabulary to.")
@config_options(VocabConfig, RunOptions)
@click.pass_context
def vocab(ctx: click.Context, documents: str, output: str, **values: Any) -> Made:
    """Learn a WordPiece vocabulary from the words of DOCUMENTS, the same one on every run.

    Options for Apache Beam follow after --.
    """
    from ..pipeline.vocab import learn_vocabulary

    options = make_config(RunOptions, values, beam_options=ctx.obj or ())
    manifest = learn_vocabulary(documents, output, make_config(VocabConfig, values), options)
    return Made("vocab", output, _rows(manifest["report"]))


def _rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    learned, held_out = report["learned_from"], report["validation"]
    missing = learned["num_missing"]
    return [
        (
            "tokens",
            f"{report['num_tokens']:,}" + (f" ({missing:,} fewer than asked: the corpus is small)" if missing else ""),
        ),
        ("learned from", f"{learned['num_words']:,} distinct words"),
        ("tokens per word, held out", f"{held_out['tokens_per_word']:.3f}"),
        ("unknown tokens, held out", f"{held_out['unknown_share']:.3%}"),
    ]
