"""The figures of the BERT paper (arXiv 1810.04805): in percent, perplexities excepted."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    label: str
    metric: str
    """As in ``results.csv``."""


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    label: str
    figures: tuple[float, ...] = ()
    """The paper's, in the order of the table's columns."""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table of the paper, or a figure."""

    title: str
    note: str
    """The model and the data behind the paper's figures."""
    columns: dict[str, Column] = field(default_factory=dict[str, Column])
    rows: dict[str, Row] = field(default_factory=dict[str, Row])

    def figure(self, row: str, column: str) -> float | None:
        """Return the paper's figure; None if it has none."""
        if row not in self.rows or column not in self.columns:
            return None
        figures = dict(zip(self.columns, self.rows[row].figures, strict=False))
        return figures.get(column)


PERPLEXITY = "perplexity"
_MNLI = Column("MNLI-m", "accuracy")
_MRPC = Column("MRPC", "accuracy")
_SST2 = Column("SST-2", "accuracy")
_QNLI = Column("QNLI", "accuracy")
_BASE = "BERT-base after 1,000,000 steps, on dev"

TABLE_1 = PaperTable(
    title="Table 1: GLUE",
    note="BERT-base on the test sets",
    columns={
        "mnli": _MNLI,
        "qqp": Column("QQP F1", "f1"),
        "qnli": _QNLI,
        "sst2": _SST2,
        "cola": Column("CoLA", "matthews"),
        "stsb": Column("STS-B", "spearman"),
        "mrpc": Column("MRPC F1", "f1"),
        "rte": Column("RTE", "accuracy"),
    },
    rows={"dev": Row("one encoder, on dev", (84.6, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4))},
)

TABLE_5 = PaperTable(
    title="Table 5: pre-training tasks",
    note=_BASE,
    columns={
        "mnli": _MNLI,
        "qnli": _QNLI,
        "mrpc": _MRPC,
        "sst2": _SST2,
        "squad": Column("SQuAD F1", "f1"),
    },
    rows={
        "full": Row("masked LM and next sentences", (84.4, 88.4, 86.7, 92.7, 88.5)),
        "no-nsp": Row("no next sentences", (83.9, 84.9, 86.5, 92.6, 87.9)),
        "left-to-right": Row("left to right, no next sentences", (82.1, 84.3, 77.5, 92.1, 77.8)),
        "left-to-right-bilstm": Row("+ BiLSTM", (82.1, 84.1, 75.7, 91.6, 84.9)),
    },
)

TABLE_6 = PaperTable(
    title="Table 6: sizes (layers-hidden size-heads)",
    note="after 1,000,000 steps, on dev",
    columns={
        PERPLEXITY: Column("held-out perplexity", PERPLEXITY),
        "mnli": _MNLI,
        "mrpc": _MRPC,
        "sst2": _SST2,
    },
    rows={
        "3-768-12": Row("3-768-12", (5.84, 77.9, 79.8, 88.4)),
        "6-768-3": Row("6-768-3", (5.24, 80.6, 82.2, 90.7)),
        "6-768-12": Row("6-768-12", (4.68, 81.9, 84.8, 91.3)),
        "12-768-12": Row("12-768-12", (3.99, 84.4, 86.7, 92.9)),
        "12-1024-16": Row("12-1024-16", (3.54, 85.7, 86.9, 93.3)),
        "24-1024-16": Row("24-1024-16", (3.23, 86.6, 87.8, 93.7)),
    },
)

TABLE_7 = PaperTable(
    title="Table 7: named entities, fine-tuned or by features",
    note=f"{_BASE}, CoNLL-2003",
    columns={"ner": Column("NER", "f1")},
    rows={
        "fine-tuned": Row("fine-tuned", (96.4,)),
        "embeddings": Row("embeddings", (91.0,)),
        "second-to-last": Row("second-to-last layer", (95.6,)),
        "last": Row("last layer", (94.9,)),
        "weighted-sum-last-four": Row("weighted sum of the last four", (95.9,)),
        "concat-last-four": Row("concatenation of the last four", (96.1,)),
        "weighted-sum-all": Row("weighted sum of all layers", (95.5,)),
    },
)

TABLE_8 = PaperTable(
    title="Table 8: masking ([MASK]-same-random, in percent)",
    note=f"{_BASE}, NER on CoNLL-2003",
    columns={
        "mnli": _MNLI,
        "ner": Column("NER, fine-tuned", "f1"),
        "ner-features": Column("NER, features", "f1"),
    },
    rows={
        "80-10-10": Row("80-10-10", (84.2, 95.4, 94.9)),
        "100-0-0": Row("100-0-0", (84.3, 94.9, 94.0)),
        "80-0-20": Row("80-0-20", (84.1, 95.2, 94.6)),
        "80-20-0": Row("80-20-0", (84.4, 95.2, 94.7)),
        "0-20-80": Row("0-20-80", (83.7, 94.8, 94.6)),
        "0-0-100": Row("0-0-100", (83.6, 94.9, 94.6)),
    },
)

FIGURE_5 = PaperTable(
    title="Figure 5: accuracy by steps of pre-training",
    note="a curve without numbers, in which the masked LM is ahead almost from the start",
    rows={"masked-lm": Row("masked LM"), "left-to-right": Row("left to right")},
)
