"""A model of words alone, which an encoder should beat: logistic regression on TF-IDF."""

import math
from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

MAX_EXAMPLES = 20_000
"""More take longer than a baseline should."""


def classes_by_words(
    train_texts: Sequence[str], train_classes: Sequence[float], texts: Sequence[str]
) -> np.ndarray:
    """Return the class (N,) of each of `texts`; the training texts have at least two classes."""
    # A file may be sorted by class, so the examples are taken from all over it.
    step = math.ceil(len(train_texts) / MAX_EXAMPLES)
    # A punctuation mark is a word too, as in BERT's tokens; so is a single letter, which is left
    # out by default.
    words = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
    model = make_pipeline(words, LogisticRegression(C=10, max_iter=1000))
    model.fit(train_texts[::step], train_classes[::step])
    return model.predict(texts)
