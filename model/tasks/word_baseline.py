"""A model of words alone, which an encoder should beat: logistic regression on TF-IDF."""

import math
from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline


def classes_by_words(
    train_texts: Sequence[str],
    train_classes: Sequence[float],
    texts: Sequence[str],
    max_train: int = 20_000,
) -> np.ndarray:
    """Return the class (N,) of each of `texts`; the training texts have at least two classes.

    Of more than `max_train` training texts, which would take longer than a baseline should, a part
    is used.
    """
    # A file may be sorted by class, so the examples are taken from all over it.
    step = math.ceil(len(train_texts) / max_train)
    # A punctuation mark is a word too, as in BERT's tokens; so is a single letter, which is left
    # out by default.
    words = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
    model = make_pipeline(words, LogisticRegression(C=10, max_iter=1000))
    model.fit(train_texts[::step], train_classes[::step])
    return model.predict(texts)
