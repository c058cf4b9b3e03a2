"""The published form of a GLUE task: its metrics, its files' faults, and its server's files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .head import Answer


@dataclass(frozen=True, kw_only=True)
class GlueForm:
    """What a task of GLUE has beside a table of one's own."""

    metrics: tuple[str, ...] = ("accuracy",)
    """The first one chooses between runs."""
    headerless: tuple[str, ...] | None = None
    """Columns of a TSV without a header line."""
    max_short_share: float = 0.0
    """Share of a TSV's lines that may lack columns and are left out: QQP was published damaged."""
    server_files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of the files for GLUE's server, by split."""
    server_words: bool = False
    """The server expects the names of the classes instead of their indices."""

    def official(
        self, answers: Sequence[Answer], labels: Sequence[str], split: str
    ) -> dict[str, bytes]:
        """Return the file for GLUE's server; nothing if `split` is not a test split of GLUE.

        `labels` are the names of the classes, none for a regression.
        """
        if split not in self.server_files:
            return {}
        lines = ["index\tprediction"]
        for index, answer in enumerate(answers):
            lines.append(f"{index}\t{self._for_server(answer, labels)}")
        return {self.server_files[split]: ("\n".join(lines) + "\n").encode()}

    def _for_server(self, answer: Answer, labels: Sequence[str]) -> str:
        if not labels:
            score = min(max(answer["score"], 0.0), 5.0)  # the range of STS-B
            return f"{score:.3f}"
        if self.server_words:
            return answer["label"]
        return str(labels.index(answer["label"]))
