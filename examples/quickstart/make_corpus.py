"""Make the quickstart's data: a Wikipedia excerpt, public-domain books, and a labelled set of
sentences.

Everything written depends on the sources alone, byte for byte. It takes

- a Wikipedia dump or excerpt (``.xml.bz2``), of which the articles below `LARGEST_PAGE` characters
  are taken;
- a folder of Project Gutenberg's text files, for `WHOLE_BOOKS` (copied as they are) and `STORIES`
  (cut out of them);
- a folder of novels in plain text, for `NOVELS`::

    python examples/quickstart/make_corpus.py --dump enwiki-excerpt.xml.bz2 --gutenberg gutenberg/ --novels novels/
"""

import argparse
import bz2
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from clozeworks.pipeline.config import IngestConfig
from clozeworks.pipeline.counters import Counters
from clozeworks.pipeline.seeding import rng_for, stable_hash
from clozeworks.pipeline.sources.formats import read_range
from clozeworks.pipeline.sources.streams import InputRange
from clozeworks.pipeline.text.sentences import split_sentences

LARGEST_PAGE = 100_000
PAGES_PER_STREAM = 10
NUM_REDIRECTS = 12
TRAIN_PER_AUTHOR = 500
DEV_PER_AUTHOR = 100
# Train and dev come from different chapters: the first four fifths of a novel, and its last tenth.
TRAIN_SHARE = 0.8
DEV_SHARE = 0.1

PLAIN_SENTENCE = re.compile(r"[A-Z][a-z]*(?:[,;:]? (?:[A-Za-z]+(?:['-][A-Za-z]+)*))+[.!?]")


class Story(NamedTuple):
    """One story of a collection: the lines of `file` from the heading `first` up to the heading
    `after`.
    """

    name: str
    file: str
    first: str
    after: str


WHOLE_BOOKS = {
    "cervantes-don-quixote-part-15": "Cervantes Saavedra - The History of Don Quixote, Volume 1, Part 15.txt",
    "elwes-the-adventures-of-a-bear": "Weir - The Adventures of a Bear, and a Great Bear Too.txt",
    "tolstoy-what-men-live-by": "Maude - What Men Live By, and Other Tales.txt",
}
CHEKHOV = "Chekhov - The Witch, and Other Stories.txt"
DOYLE = "Doyle - Adventures of Sherlock HolmesIllustrated.txt"
POE = "Poe - The Works of Edgar Allan Poe — Volume 2.txt"
STOKER = "Stoker - Dracula's Guest.txt"
TWAIN = "Twain - The Man That Corrupted Hadleyburg, and Other Stories.txt"
STORIES = (
    Story("chekhov-the-new-villa", CHEKHOV, "THE NEW VILLA", "DREAMS"),
    Story("chekhov-gusev", CHEKHOV, "GUSEV", "THE STUDENT"),
    Story("chekhov-happiness", CHEKHOV, "HAPPINESS", "A MALEFACTOR"),
    Story("doyle-the-red-headed-league", DOYLE, "THE RED-HEADED LEAGUE", "Adventure III"),
    Story("doyle-the-speckled-band", DOYLE, "THE ADVENTURE OF THE SPECKLED BAND", "Adventure IX"),
    Story("poe-the-fall-of-the-house-of-usher", POE, "THE FALL OF THE HOUSE OF USHER", "SILENCE--A FABLE"),
    Story("poe-the-pit-and-the-pendulum", POE, "THE PIT AND THE PENDULUM", "THE PREMATURE BURIAL"),
    Story("poe-the-purloined-letter", POE, "THE PURLOINED LETTER", "THE THOUSAND-AND-SECOND TALE OF SCHEHERAZADE"),
    Story("poe-william-wilson", POE, "WILLIAM WILSON", "THE TELL-TALE HEART."),
    Story("stoker-draculas-guest", STOKER, "Dracula's Guest", "The Judge's House"),
    Story("stoker-the-judges-house", STOKER, "The Judge's House", "The Squaw"),
    Story("stoker-the-squaw", STOKER, "The Squaw", "The Secret of the Growing Gold"),
    Story("twain-at-the-appetite-cure", TWAIN, "AT THE APPETITE-CURE", "CONCERNING THE JEWS"),
    Story("twain-the-esquimaux-maidens-romance", TWAIN, "THE ESQUIMAUX MAIDEN'S ROMANCE",
          "CHRISTIAN SCIENCE AND THE BOOK OF MRS. EDDY"),
    Story("twain-travelling-with-a-reformer", TWAIN, "TRAVELLING WITH A REFORMER", "DIPLOMATIC PAY AND CLOTHES"),
)  # fmt: skip
NOVELS = {
    "Charles Dickens": ("Dickens_Bleak_1853.txt", "Dickens_Expectations_1861.txt"),
    "Henry James": ("James_Ambassadors_1903.txt", "James_Roderick_1875.txt"),
    "Rudyard Kipling": (
        "Kipling_Captains_1896.txt",
        "Kipling_Kim_1901.txt",
        "Kipling_Light_1891.txt",
    ),
    "William Morris": ("Morris_Roots_1890.txt", "Morris_Water_1897.txt", "Morris_Wood_1894.txt"),
}


def main() -> None:
    """Write ``corpus/``, ``word-order/`` and ``ATTRIBUTION.md`` into the output folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dump", type=Path, required=True)
    parser.add_argument("--gutenberg", type=Path, required=True)
    parser.add_argument("--novels", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    for folder in ("corpus/books", "word-order"):
        (options.output / folder).mkdir(parents=True, exist_ok=True)
    write_wikipedia(options.dump, options.output)
    write_books(options.gutenberg, options.output / "corpus" / "books")
    write_word_order(options.novels, options.output / "word-order")


def write_wikipedia(dump: Path, output: Path) -> None:
    """Write a multistream dump of whole pages with their markup, and the list of the articles in
    it.
    """
    text = bz2.decompress(dump.read_bytes()).decode("utf-8")
    header = text[: text.index("  <page>")]
    pages = [
        page
        for page in re.findall(r"  <page>.*?</page>\n", text, re.DOTALL)
        if len(page) <= LARGEST_PAGE
    ]
    redirects = [page for page in pages if "<redirect " in page][:NUM_REDIRECTS]
    taken = [page for page in pages if "<redirect " not in page or page in redirects]
    streams = [
        "".join(taken[start : start + PAGES_PER_STREAM])
        for start in range(0, len(taken), PAGES_PER_STREAM)
    ]
    parts = [bz2.compress(part.encode("utf-8")) for part in (header, *streams, "</mediawiki>\n")]
    (output / "corpus" / "enwiki-excerpt.xml.bz2").write_bytes(b"".join(parts))
    lines = [attribution_line(page) for page in taken if page not in redirects]
    (output / "ATTRIBUTION.md").write_text(ATTRIBUTION + "".join(lines), encoding="utf-8")


ATTRIBUTION = """\
# Articles in `corpus/enwiki-excerpt.xml.bz2`

From the English Wikipedia, as its dump of 2016 had them; whole pages with their markup, not edited. The text is by
the contributors of each article, whom its page history names, under the Creative Commons Attribution-ShareAlike
License (https://creativecommons.org/licenses/by-sa/3.0/). What is derived from this text is under the same licence.

"""


def attribution_line(page: str) -> str:
    """Return the entry of one page in the list of articles: its title and its address."""
    found = re.search(r"<title>(.*?)</title>.*?<id>(\d+)</id>", page, re.DOTALL)
    assert found is not None
    return f"- {found[1]}: https://en.wikipedia.org/?curid={found[2]}\n"


def write_books(gutenberg: Path, output: Path) -> None:
    """Copy the whole books byte for byte, and cut the stories out of theirs, without anything of
    the file's frame.
    """
    for name, file in WHOLE_BOOKS.items():
        shutil.copyfile(gutenberg / file, output / f"{name}.txt")
    for story in STORIES:
        text = (gutenberg / story.file).read_text("utf-8-sig")
        (output / f"{story.name}.txt").write_text(
            cut_story(text, story), encoding="utf-8", newline="\n"
        )


def cut_story(text: str, story: Story) -> str:
    """Return the lines of `story`; its headings stand in ``text`` as whole lines, and before that
    in the contents.
    """
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line == story.first]
    stop = next(
        number for number, line in enumerate(lines) if line == story.after and number > starts[-1]
    )
    return "\n".join(lines[starts[-1] : stop]).strip() + "\n"


def write_word_order(novels: Path, output: Path) -> None:
    """Write ``train.tsv`` and ``dev.tsv`` in the form of SST-2: in every second sentence the words
    are shuffled.
    """
    examples: dict[str, list[tuple[str, str]]] = {"train": [], "dev": []}
    for author, files in NOVELS.items():
        sentences = [novel_sentences(novels / file) for file in files]
        train = {text for novel in sentences for text in novel[: int(len(novel) * TRAIN_SHARE)]}
        dev = {
            text for novel in sentences for text in novel[-int(len(novel) * DEV_SHARE) :]
        } - train
        examples["train"] += [
            (text, author) for text in draw(train, TRAIN_PER_AUTHOR, author, "train")
        ]
        examples["dev"] += [(text, author) for text in draw(dev, DEV_PER_AUTHOR, author, "dev")]
    for split, rows in examples.items():
        rows.sort(key=lambda row: stable_hash("quickstart order", *row))
        words = [re.findall(r"[a-z'-]+", text.lower()) for text, _ in rows]
        lines = ["sentence\tlabel\n"]
        for index, in_order in enumerate(words):
            lines.append(
                f"{' '.join(shuffled(in_order))} .\tshuffled\n"
                if index % 2
                else f"{' '.join(in_order)} .\tin order\n"
            )
        (output / f"{split}.tsv").write_text("".join(lines), encoding="utf-8", newline="\n")


def shuffled(words: list[str]) -> list[str]:
    """Return the words in a random order other than theirs."""
    rng = rng_for(0, "quickstart word order", *words)
    while (mixed := [words[index] for index in rng.permutation(len(words))]) == words:
        pass
    return mixed


def draw(sentences: set[str], count: int, author: str, split: str) -> list[str]:
    """Draw `count` of the sentences at random, without repetition."""
    chosen = rng_for(0, "quickstart authors", author, split).choice(
        len(sentences), count, replace=False
    )
    ordered = sorted(sentences)
    return [ordered[index] for index in chosen]


def novel_sentences(path: Path) -> list[str]:
    """Return the sentences of a novel that are fit for the labelled set, in their order.

    Quotation marks and dashes tell who transcribed the book, not who wrote it: sentences with them
    are left out.
    """
    part = InputRange(path=str(path), name=path.name, format="text")
    (novel,) = read_range(part, IngestConfig(documents="file"), Counters())
    sentences = split_sentences(novel.paragraphs, "en")
    return [
        text
        for text in sentences
        if 8 <= text.count(" ") + 1 <= 40 and PLAIN_SENTENCE.fullmatch(text)
    ]


if __name__ == "__main__":
    main()
