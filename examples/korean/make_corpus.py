"""Make the Korean example's data: Wikipedia articles, and parts of KorSTS and of XNLI's Korean
translation.

Everything written depends on the sources alone, byte for byte. It takes a Parquet file of Korean
articles (columns ``id``, ``url``, ``title``, ``text``, as in ``wikimedia/wikipedia``) and the
official files of kakaobrain/kor-nlu-datasets::

    python examples/korean/make_corpus.py --articles kowiki.parquet --korsts KorSTS/ --xnli KorNLI/xnli.dev.ko.tsv
"""

import argparse
import json
from pathlib import Path

import pyarrow.parquet as pq
from clozeworks.pipeline.seeding import stable_hash

CORPUS_BYTES = 600_000
CHARACTERS = range(1_500, 4_000)
NUM_TRAIN, NUM_DEV, NUM_XNLI = 600, 200, 400


def main() -> None:
    """Write the files beside this one."""
    parser = argparse.ArgumentParser()
    for name in ("articles", "korsts", "xnli"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    sources = parser.parse_args()
    folder = Path(__file__).parent
    (folder / "korsts").mkdir(exist_ok=True)
    articles = choose_articles(
        pq.read_table(sources.articles, columns=["id", "url", "title", "text"]).to_pylist()
    )
    lines = (json.dumps(article, ensure_ascii=False) + "\n" for article in articles)
    (folder / "kowiki.jsonl").write_text("".join(lines), encoding="utf-8")
    listed = "".join(f"- {article['title']}: {article['url']}\n" for article in articles)
    (folder / "ATTRIBUTION.md").write_text((ATTRIBUTION + listed), encoding="utf-8")
    for split, size in (("train", NUM_TRAIN), ("dev", NUM_DEV)):
        copy_rows(
            next(sources.korsts.glob(f"*{split}.tsv")), folder / "korsts" / f"{split}.tsv", size
        )
    copy_rows(sources.xnli, folder / "xnli.tsv", NUM_XNLI)


def choose_articles(articles: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return articles of medium length, drawn by the hash of their title, up to `CORPUS_BYTES` of
    text.
    """
    chosen, num_bytes = [], 0
    for article in sorted(
        articles, key=lambda article: stable_hash("korean example", article["title"])
    ):
        if (
            len(article["text"]) in CHARACTERS
            and "목록" not in article["title"]
            and num_bytes < CORPUS_BYTES
        ):
            chosen.append(article)
            num_bytes += len(article["text"].encode())
    return chosen


def copy_rows(source: Path, target: Path, size: int) -> None:
    """Copy the header and `size` lines, drawn by their hash, in their order."""
    header, *lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
    drawn = set(sorted(lines, key=lambda line: stable_hash("korean example", line))[:size])
    target.write_text(header + "".join(line for line in lines if line in drawn), encoding="utf-8")


ATTRIBUTION = """# Where the texts come from

## `korsts/` and `xnli.tsv`

Parts of KorSTS and of the Korean XNLI in KorNLI, from https://github.com/kakaobrain/kor-nlu-datasets (Ham, Choe, Park,
Choi and Soh, "KorNLI and KorSTS", 2020), rows not edited, under the Creative Commons Attribution-ShareAlike 4.0 licence
(https://creativecommons.org/licenses/by-sa/4.0/).

## `kowiki.jsonl`

Articles of the Korean Wikipedia, as WikiExtractor left them, not edited. The text is by the contributors of each
article, whom its page history names, under the Creative Commons Attribution-ShareAlike License
(https://creativecommons.org/licenses/by-sa/3.0/). What is derived from this text is under the same licence.

"""

if __name__ == "__main__":
    main()
