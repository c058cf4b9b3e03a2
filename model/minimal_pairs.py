"""Measure an encoder on minimal pairs, such as BLiMP (arXiv 1912.00582), as it is: of two sentences
that differ in little, the acceptable one should have the higher score.

A sentence's score is its pseudo-log-likelihood: each token is masked once, and the logarithms of
its probabilities given the rest are added up (arXiv 1910.14659). A token of a word of several
tokens is easy to guess from the others, so such words would score too high. Therefore the tokens of
the same word to its right are masked too (PLL-word-l2r, arXiv 2305.10588):

    tokens      [CLS] the sou ##ven ##ir [SEP]
    rows        [CLS] [M] sou ##ven ##ir [SEP]      -> the
                [CLS] the [M] [M]   [M]  [SEP]      -> sou
                [CLS] the sou [M]   [M]  [SEP]      -> ##ven
                [CLS] the sou ##ven [M]  [SEP]      -> ##ir

BabyLM's evaluation masks each token alone, which is reported beside it (``token_alone``).

A left-to-right encoder needs a single row: a token's probability given those before it.

Shapes: R rows, L tokens of a row, V tokens in the vocabulary.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

from ..pipeline.counters import Z_95, wilson_interval
from ..pipeline.errors import UserError
from ..pipeline.vocabulary.tokenize import faults_reported
from ..pipeline.vocabulary.vocabulary import Vocabulary
from .checkpoint import Checkpoint
from .copies import local_copy
from .encoders.heads import PretrainModel
from .tasks.example_tables import read_rows
from .training.device import find_device
from .training.logs import ProgressCallback

COLUMNS = (("sentence_good", "sen"), ("sentence_bad", "wrong_sen"))
"""The acceptable sentence and the other: BLiMP's names, and MultiBLiMP's."""
GROUPS = ("field", "linguistics_term", "phenomenon")
"""Columns by which accuracy is reported, where a file has them; BLiMP has the first two."""
PARADIGM = "UID"
"""BLiMP's column; without it each file is a paradigm, of MultiBLiMP each kind of agreement."""


def evaluate_minimal_pairs(
    run: str | Path,
    data: str | Path,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    sentences_at_once: int | None = None,
) -> dict[str, Any]:
    """Return the `accuracy` over ``all`` pairs, and of each value of each column of `GROUPS`; and
    the means over the paradigms with their 95% intervals (``mean_accuracy``, ``mean_token_alone``).

    `data` is a table with the columns `COLUMNS`, a folder of JSON Lines, or MultiBLiMP's of a
    language or all (``deu/data.tsv``). `progress` is called with ``stage``, ``step`` and ``steps``
    (sentences). Raises `UserError` if a column is missing, or a sentence is too long.
    """
    pairs = list(read_minimal_pairs(data))
    if not pairs:
        raise UserError(f"{data} has no pairs.")
    checkpoint = Checkpoint.open(run)
    target = find_device(device)
    model = checkpoint.pretrain_model(masked_words_alone=True).eval().to(target)
    vocabulary = checkpoint.vocabulary()
    sentences = [sentence for good, bad, _ in pairs for sentence in (good, bad)]
    scores_2N = np.zeros((2, len(sentences)))
    num_at_once = sentences_at_once or (10_000 if target.type == "cuda" else 1000)
    for first in range(0, len(sentences), num_at_once):
        some = sentences[first : first + num_at_once]
        scores_2N[:, first : first + len(some)] = sentence_scores(model, vocabulary, some)
        if progress:
            num_done = first + len(some)
            progress({"stage": "sentences", "step": num_done, "steps": len(sentences)})
    by_group: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, (_, _, groups) in enumerate(pairs):
        for column, value in groups.items():
            by_group[column][value].append(number)
    differences_2N = scores_2N[:, ::2] - scores_2N[:, 1::2]
    measured: dict[str, Any] = {"all": accuracy(differences_2N)}
    for column, numbers in by_group.items():
        measured[column] = {
            value: accuracy(differences_2N[:, numbers[value]]) for value in sorted(numbers)
        }
    # As BabyLM's evaluation has it: each paradigm counts as much as any other.
    paradigms = list(measured.pop(PARADIGM).values())
    measured["paradigms"] = len(paradigms)
    for name in ("accuracy", "token_alone"):
        shares = [paradigm[name] for paradigm in paradigms]
        mean = measured[f"mean_{name}"] = fmean(shares)
        if len(shares) > 1:
            reach = Z_95 * stdev(shares) / len(shares) ** 0.5
            measured[f"mean_{name}_low"] = max(mean - reach, 0.0)
            measured[f"mean_{name}_high"] = min(mean + reach, 1.0)
    return measured


def accuracy(differences_2N: np.ndarray) -> dict[str, float]:
    """Return the number of ``pairs``, the share in which the acceptable sentence has the higher
    score, the ends of its 95% interval (Wilson's), ``low`` and ``high``; and as BabyLM's evaluation
    has it: the share with each token masked alone, ``token_alone``, ``ties`` being right.

    `differences_2N` is the acceptable sentence's score less the other's: with each token masked
    alone, and with those to its right in its word.
    """
    token_alone_N, whole_word_N = differences_2N
    num_pairs = len(whole_word_N)
    num_right = int((whole_word_N > 0).sum())
    low, high = wilson_interval(num_right, num_pairs)
    return {
        "pairs": num_pairs,
        "accuracy": num_right / num_pairs,
        "low": low,
        "high": high,
        "token_alone": float((token_alone_N >= 0).mean()),
        "ties": int((token_alone_N == 0).sum()),
    }


def read_minimal_pairs(data: str | Path) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the acceptable and the other sentence of each pair of a table, or of all JSON Lines or
    files of MultiBLiMP in a folder, by name; and its kinds, by column.
    """
    files = [local_copy(data)]
    if files[0].is_dir():
        folder = files[0]
        files = sorted(folder.glob("*.jsonl")) or sorted(folder.rglob("data.tsv"))
        if not files:
            raise UserError(f"The folder {data} has no .jsonl files, nor any data.tsv.")
    for file in files:
        for row in read_rows(file):
            for names in COLUMNS:
                if row.values.keys().isdisjoint(names):
                    columns = ", ".join(row.values)
                    raise UserError(
                        f"{row.where}: there is no column {names[0]}, only {columns}. "
                        "Minimal pairs need two columns of sentences; labelled examples need a "
                        "model that is fine-tuned."
                    )
            good, bad = (row.text(*names) for names in COLUMNS)
            groups = {name: row.text(name) for name in GROUPS if row.values.get(name)}
            if "field" in groups:  # one field of BLiMP is written in two ways
                groups["field"] = groups["field"].replace("/", "_")
            paradigm = row.values.get(PARADIGM) or file.stem
            if "wrong_sen" in row.values:
                # MultiBLiMP's folders are named for languages, and pandas wrote its tables.
                groups["language"] = file.absolute().parent.name
                paradigm = f"{groups['language']} {groups.get('phenomenon')}"
                good, bad = map(_unquoted, (good, bad))
            groups[PARADIGM] = str(paradigm)
            yield good, bad, groups


def _unquoted(text: str) -> str:
    """Return a field of a TSV as it was before pandas put it in quotes, because it has some."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text


@torch.inference_mode()
def sentence_scores(
    model: PretrainModel,
    vocabulary: Vocabulary,
    sentences: Sequence[str],
    tokens_at_once: int | None = None,
) -> np.ndarray:
    """Return the natural logarithm of each sentence's pseudo-likelihood, float64 (2, N): with each
    token masked alone, and with those to its right in its word; 0 for a sentence without tokens.
    """
    device = next(model.parameters()).device
    limit = model.config.num_positions
    is_decoder = model.config.is_decoder
    with faults_reported():
        encodings = vocabulary.plain_tokenizer().encode_batch(list(sentences))
    # What is predicted in a row: which score it adds to (0 if the token is masked alone, 1 with
    # those to its right), which sentence's, where, and the token. Rows of one length need no
    # padding. Equal ones are computed once: where the sentences of a pair differ in one word, the
    # rows that mask it are equal.
    predicted: dict[int, dict[bytes, list[tuple[int, int, int, int]]]] = defaultdict(dict)
    for sentence, encoding in enumerate(encodings):
        ids_L = np.array(encoding.ids, dtype=np.int64)
        if len(ids_L) > limit:
            raise UserError(
                f"A sentence has {len(ids_L)} tokens, but the model reads at most {limit}: "
                f"{sentences[sentence][:60]!r} …"
            )
        words = encoding.word_ids
        for position, word in enumerate(words):
            if word is None:  # a special token
                continue
            word_end = position
            while words[word_end] == word:
                word_end += 1
            for kind, end in enumerate((position + 1, word_end)):
                row_L = ids_L.copy()
                if not is_decoder:
                    row_L[position:end] = vocabulary.mask_id
                # A left-to-right model predicts a token from the one before.
                prediction = (kind, sentence, position - is_decoder, int(ids_L[position]))
                predicted[len(ids_L)].setdefault(row_L.tobytes(), []).append(prediction)
    scores_2N = np.zeros((2, len(sentences)))
    if tokens_at_once is None:
        tokens_at_once = 65_536 if device.type == "cuda" else 2048
    for length, predictions_by_row in predicted.items():
        all_rows = list(predictions_by_row.items())
        rows_at_once = max(1, tokens_at_once // length)
        for first in range(0, len(all_rows), rows_at_once):
            rows = all_rows[first : first + rows_at_once]
            ids_RL = np.stack([np.frombuffer(row, np.int64) for row, _ in rows])
            predictions = [prediction for _, its in rows for prediction in its]
            kinds, numbers, positions, token_ids = np.array(predictions).T
            predictions_of_row = [len(its) for _, its in rows]
            row_numbers = np.repeat(np.arange(len(rows)), predictions_of_row)
            index = torch.from_numpy(row_numbers * length + positions)
            hidden_RLD = model.encoder(torch.from_numpy(ids_RL).to(device))
            logits_MV = model.mlm_logits(hidden_RLD, index.to(device))
            token_ids_M1 = torch.from_numpy(token_ids).to(device)[:, None]
            chosen_M1 = logits_MV.float().log_softmax(-1).gather(1, token_ids_M1)
            chosen_M = chosen_M1.squeeze(1).cpu().numpy()
            np.add.at(scores_2N, (kinds, numbers), chosen_M)
    return scores_2N
