"""How often each source and language is read in a pass: weights as asked, or by an exponent over
the languages.

The weight of a group of documents is the product of those of its source and its language; if these
share a name, its weight counts once. With an exponent below 1, small languages are read more often
and large ones less, in the same total: the share of a language becomes proportional to (share of
the text) ** exponent, as in multilingual BERT (0.7) and XLM-R (0.3; arXiv 1911.02116, section 3.1).
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from .errors import UserError
from .manifests import DocumentsManifest, MixtureGroup

MAX_WEIGHT = 1000.0


def parse_weights(entries: Iterable[str]) -> dict[str, float]:
    """Return the weights of ``NAME=WEIGHT`` by name; raise `UserError` for anything else.

    >>> parse_weights(["enwiki=1,books=2.5", "ko=3"])
    {'enwiki': 1.0, 'books': 2.5, 'ko': 3.0}
    """
    weights: dict[str, float] = {}
    for part in (part for entry in entries for part in entry.split(",")):
        name, equals, value = part.rpartition("=")
        if name in weights:
            raise UserError(
                f"--weight {part}: {name} has a weight already; give one for each name."
            )
        try:
            weights[name] = float(value)
        except ValueError:
            equals = ""
        if not name or not equals or not 0 < weights[name] <= MAX_WEIGHT:
            raise UserError(
                f"--weight {part}: give NAME=WEIGHT, the weight above 0 and at most {MAX_WEIGHT:g}."
            )
    return weights


def plan_mixture(
    corpus: DocumentsManifest, weight: Sequence[str], language_exponent: float
) -> list[MixtureGroup]:
    """Return how often to read each source and language of the training text; raise `UserError` for
    an unknown name.
    """
    characters: Counter[tuple[str, str]] = Counter()
    languages: Counter[str] = Counter()
    for group in (
        group for shard in corpus.shards if shard.split == "train" for group in shard.groups
    ):
        characters[group.source, group.language] += group.characters
        languages[group.language] += group.characters
    asked = parse_weights(weight)
    known = sorted({name for key in characters for name in key})
    if unknown := [name for name in asked if name not in known]:
        raise UserError(
            f"--weight {unknown[0]}: no source or language has this name; choose from {', '.join(known)}."
        )
    total = sum(languages.values()) or 1
    powers = {
        name: (count / total) ** language_exponent for name, count in languages.items() if count
    }
    scale = {
        name: power / sum(powers.values()) * total / languages[name]
        for name, power in powers.items()
    }
    return [
        MixtureGroup(
            source=source,
            language=language,
            weight=round(
                scale.get(language, 1.0)
                * math.prod(asked.get(name, 1.0) for name in {source, language}),
                6,
            ),
        )
        for source, language in sorted(characters)
    ]


def weights_of(mixture: Iterable[MixtureGroup]) -> dict[tuple[str, str], float]:
    """Return the weights by source and language, none if all are 1."""
    weights = {(group.source, group.language): group.weight for group in mixture}
    return weights if any(weight != 1 for weight in weights.values()) else {}
