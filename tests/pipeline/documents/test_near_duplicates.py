"""Near-duplicates in ingest; the oracle is the exact Jaccard similarity."""

import random
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from clozeworks.pipeline.config import IngestConfig, RunOptions
from clozeworks.pipeline.documents.near_duplicates import find_first, pair_up
from clozeworks.pipeline.documents.pipeline import ingest
from clozeworks.pipeline.seeding import stable_hash
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

JAPANESE = "日本語文章類似検出試験私達毎朝早起海辺歩"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=30))
def test_texts_of_one_band_are_connected(entries: list[tuple[int, int]]):
    pairs = pair_up(*np.array(entries, np.uint64).reshape(-1, 2).T).tolist()
    assert all(one < other for one, other in pairs) and len({tuple(pair) for pair in pairs}) == len(
        pairs
    )
    for band in {band for band, _ in entries}:
        texts = {text for other, text in entries if other == band}
        reached, todo = set(), {min(texts)}
        while todo:
            reached |= todo
            todo = {text for pair in pairs for text in pair if {*pair} & reached} & texts - reached
        assert reached == texts
    meet = set(entries)
    assert all(
        any({(band, one), (band, other)} <= meet for band in range(6)) for one, other in pairs
    )


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=30))
def test_clusters_are_the_connected_components(pairs: list[tuple[int, int]]):
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    _, labels = connected_components(
        coo_array((np.ones(len(ends)), ends.T), shape=(20, 20)), directed=False
    )
    expected = [int(np.flatnonzero(labels == label)[0]) for label in labels]
    assert find_first(20, ends).tolist() == expected


def words(rng: random.Random, number: int, alphabet: str = "") -> list[str]:
    return (
        rng.choices(alphabet, k=number)
        if alphabet
        else [f"w{rng.randrange(3000)}" for _ in range(number)]
    )


def changed(rng: random.Random, text: list[str], number: int, alphabet: str = "") -> list[str]:
    """Return the words of a text with some of them replaced."""
    text = list(text)
    for index in rng.sample(range(len(text)), number):
        text[index] = words(rng, 1, alphabet)[0]
    return text


def similarity(one: list[str], other: list[str]) -> float:
    grams = [{tuple(text[i : i + 5]) for i in range(len(text) - 4)} for text in (one, other)]
    return len(grams[0] & grams[1]) / len(grams[0] | grams[1])


def write(folder: Path, texts: dict[str, list[str]], space: str = " ") -> str:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        rows = [
            space.join(text[i : i + 12]) + ("." if space else "。") for i in range(0, len(text), 12)
        ]
        (folder / f"{name}.txt").write_text(" ".join(rows) if space else "".join(rows))
    return str(folder)


def ids_in(documents: Path) -> set[str]:
    return {
        doc_id
        for path in documents.glob("*.parquet")
        for doc_id in pq.read_table(path)["doc_id"].to_pylist()
    }


def doc_hash(folder: str, name: str) -> int:
    return stable_hash(0, "document", f"text:{folder}/{name}")


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "ja"])
def test_what_is_alike_goes_and_the_rest_stays(tmp_path: Path, language: str):
    alphabet, space = (JAPANESE, "") if language == "ja" else ("", " ")
    rng = random.Random(3)
    texts, alike, unlike = {}, [], []
    for i in range(40):
        base = texts[f"{i}"] = words(rng, 600, alphabet)
        close, far = changed(rng, base, 5, alphabet), changed(rng, base, 90, alphabet)
        assert similarity(base, close) > 0.9 and similarity(base, far) < 0.6
        texts[f"{i}-close"], texts[f"{i}-far"] = close, far
        alike.append((f"{i}", f"{i}-close"))
        unlike.append(f"{i}-far")
    source = write(tmp_path / "texts", texts, space)
    config = IngestConfig(near_duplicates=0.8, language=language)
    manifest = ingest([source], str(tmp_path / "out"), config, RunOptions())
    kept = {min(pair, key=lambda name: doc_hash("texts", name)) for pair in alike}
    assert ids_in(tmp_path / "out") == {f"text:texts/{name}" for name in [*kept, *unlike]}
    assert (manifest.counts["near_duplicates"], manifest.counts["duplicate_texts"]) == (40, 0)
    one, two = (
        name.removeprefix("text:texts/")
        for name in manifest.examples["near_duplicates"][0].split(" repeats ")
    )
    assert tuple(sorted((one, two))) in alike and two in kept
    assert "rensa" in manifest.versions


@pytest.mark.slow
def test_a_copy_of_a_near_duplicate_goes_too_and_the_cluster_keeps_one(tmp_path: Path):
    rng = random.Random(5)
    base = words(rng, 500)
    cluster = {"a": base, "b": changed(rng, base, 4), "c": base, "d": changed(rng, base, 3)}
    others = {f"other-{i}": words(rng, 500) for i in range(6)}
    source = write(tmp_path / "texts", {**cluster, **others})
    manifest = ingest(
        [source], str(tmp_path / "out"), IngestConfig(near_duplicates=0.8), RunOptions()
    )
    kept = min(cluster, key=lambda name: doc_hash("texts", name))
    assert ids_in(tmp_path / "out") == {f"text:texts/{name}" for name in [kept, *others]}
    assert manifest.counts["near_duplicates"] + manifest.counts["duplicate_texts"] == 3


@pytest.mark.slow
def test_texts_without_words_are_not_alike(tmp_path: Path):
    texts = {f"{i}": [character * 3] * 120 for i, character in enumerate("!?#%&*+")}
    write(tmp_path / "texts", texts)
    config = IngestConfig(near_duplicates=0.8, format="text", documents="line")
    manifest = ingest([str(tmp_path / "texts")], str(tmp_path / "out"), config, RunOptions())
    assert (len(ids_in(tmp_path / "out")), manifest.counts.get("near_duplicates", 0)) == (7, 0)


@pytest.mark.slow
def test_workers_and_order_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rng = random.Random(9)
    bases = [words(rng, 400) for _ in range(30)]
    texts = {
        f"{i}-{j}": changed(rng, base, 2 * j) for i, base in enumerate(bases) for j in range(3)
    }
    source = write(tmp_path / "texts", texts)
    config = IngestConfig(near_duplicates=0.8)
    made = [
        ingest([source], str(tmp_path / f"out-{workers}"), config, RunOptions(workers=workers))
        for workers in (1, 2)
    ]
    assert made[0] == made[1]
    assert len(ids_in(tmp_path / "out-1")) == 30
