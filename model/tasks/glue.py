"""The tasks of GLUE (arXiv 1804.07461): columns and labels of the official TSV files, and the
official metrics.

The second name of a column is the one in the data set ``nyu-mll/glue`` (Parquet, or exported as CSV
or JSON Lines); classes have its names and numbers. The server expects a table of ``index`` and
``prediction``, the class's index for some tasks and its name for others.
"""

from .classify import Classification, GlueForm

_TASKS = (
    Classification(
        name="cola",
        text=("sentence",),
        labels=("unacceptable", "acceptable"),
        glue=GlueForm(
            metrics=("matthews",),
            headerless=("source", "label", "star", "sentence"),
            server_files={"test": "CoLA.tsv"},
        ),
    ),
    Classification(
        name="sst2",
        text=("sentence",),
        labels=("negative", "positive"),
        glue=GlueForm(server_files={"test": "SST-2.tsv"}),
    ),
    Classification(
        name="mrpc",
        text=("#1 String", "sentence1"),
        text_pair=("#2 String", "sentence2"),
        label=("Quality", "label"),
        labels=("not_equivalent", "equivalent"),
        glue=GlueForm(metrics=("f1", "accuracy"), server_files={"test": "MRPC.tsv"}),
    ),
    Classification(
        name="qqp",
        text=("question1",),
        text_pair=("question2",),
        label=("is_duplicate", "label"),
        labels=("not_duplicate", "duplicate"),
        glue=GlueForm(metrics=("f1", "accuracy"), server_files={"test": "QQP.tsv"}),
    ),
    Classification(
        name="stsb",
        text=("sentence1",),
        text_pair=("sentence2",),
        label=("score", "label"),
        glue=GlueForm(
            metrics=("spearman", "pearson", "rmse", "r2"), server_files={"test": "STS-B.tsv"}
        ),
    ),
    Classification(
        name="mnli",
        text=("sentence1", "premise"),
        text_pair=("sentence2", "hypothesis"),
        label=("gold_label", "label"),
        labels=("entailment", "neutral", "contradiction"),
        glue=GlueForm(
            # The diagnostic set (AX) is answered by a model of MNLI.
            server_files={
                "test": "MNLI-m.tsv",
                "test_mismatched": "MNLI-mm.tsv",
                "diagnostic": "AX.tsv",
            },
            server_words=True,
        ),
    ),
    Classification(
        name="qnli",
        text=("question",),
        text_pair=("sentence",),
        labels=("entailment", "not_entailment"),
        glue=GlueForm(server_files={"test": "QNLI.tsv"}, server_words=True),
    ),
    Classification(
        name="rte",
        text=("sentence1",),
        text_pair=("sentence2",),
        labels=("entailment", "not_entailment"),
        glue=GlueForm(server_files={"test": "RTE.tsv"}, server_words=True),
    ),
    Classification(
        name="wnli",
        text=("sentence1",),
        text_pair=("sentence2",),
        labels=("not_entailment", "entailment"),
        glue=GlueForm(server_files={"test": "WNLI.tsv"}),
    ),
)
GLUE = {task.name: task for task in _TASKS}
