"""Identify the language of a document, to leave out all but those in `keep_language`.

py3langid judges by a sample of sentences, whatever language the source names.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from ..errors import UserError

OTHER_LANGUAGES = "documents_in_other_languages"
"""The name of the counter of the documents left out."""
SAMPLE_SENTENCES = 20
SAMPLE_CHARACTERS = 2000


def identify_language(sentences: Sequence[str]) -> str:
    """Return the code of the language that a sample of the sentences is most likely in.

    >>> identify_language(["Il pleut sur la ville.", "Les rues sont vides."])
    'fr'
    """
    # From all over the document, because its first sentences may quote another language.
    step = max(1, len(sentences) // SAMPLE_SENTENCES)
    sample = sentences[::step]
    text = " ".join(sample)
    if len(text) > SAMPLE_CHARACTERS:
        # All of them are cut, because cutting `text` would leave out the last ones.
        longest = SAMPLE_CHARACTERS // len(sample)
        text = " ".join(sentence[:longest] for sentence in sample)
    return _identifier().classify(text)[0]


def check_languages(codes: Sequence[str]) -> None:
    """Raise `UserError` unless `identify_language` knows all of these codes."""
    known_codes = set(_identifier().labels)
    unknown_codes = sorted(set(codes) - known_codes)
    if unknown_codes:
        raise UserError(
            f"`keep_language` {unknown_codes[0]}: it is not among the known codes "
            f"({', '.join(sorted(known_codes))})."
        )


@cache
def _identifier() -> Any:
    # Imported late: the model takes 1.7 s to load and 120 MB.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)
