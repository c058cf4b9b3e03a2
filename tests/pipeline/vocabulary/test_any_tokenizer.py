"""Tokenizers of every kind: ids, rows and special tokens are those of `transformers`."""

import json
import lzma
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clozeworks.cli.main import main
from clozeworks.model.tokenizer import TextTokenizer
from clozeworks.pipeline.config import BuildConfig
from clozeworks.pipeline.errors import UserError
from clozeworks.pipeline.instances.masking import mask_rows
from clozeworks.pipeline.vocabulary.files import read_vocabulary, vocabulary_files
from clozeworks.pipeline.vocabulary.normalization import Normalization
from clozeworks.pipeline.vocabulary.vocabulary import SPECIAL_TOKENS, Specials, Vocabulary
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer, UnigramTrainer

from tests.fixtures.shared_data import DATA, needs_shared_data

SENTENCES = """
The quick brown fox didn't jump; 12,345 dogs (and cats) slept.
Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter.
Съешь же ещё этих мягких французских булок, да выпей чаю.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, και όχι μόνο.
דג סקרן שט בים מאוכזב ולפתע מצא חברה.
صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت.
यह एक छोटा वाक्य है, और इसमें संयुक्ताक्षर हैं।
আমি বাংলায় গান গাই, আমি বাংলার গান গাই।
ਇਹ ਪੰਜਾਬੀ ਵਿੱਚ ਇੱਕ ਵਾਕ ਹੈ।
આ ગુજરાતીમાં એક વાક્ય છે.
இது தமிழில் ஒரு வாக்கியம்.
ఇది తెలుగులో ఒక వాక్యం.
ಇದು ಕನ್ನಡದಲ್ಲಿ ಒಂದು ವಾಕ್ಯ.
ഇത് മലയാളത്തിൽ ഒരു വാക്യമാണ്.
මෙය සිංහල වාක්‍යයකි.
นี่คือประโยคภาษาไทยที่ไม่มีช่องว่าง
ນີ້ແມ່ນປະໂຫຍກພາສາລາວ
ဤသည်မှာ မြန်မာစာကြောင်းဖြစ်သည်။
ეს არის წინადადება ქართულად.
Սա հայերեն նախադասություն է։
ይህ በአማርኛ የተጻፈ ዓረፍተ ነገር ነው።
この文は日本語で、漢字とカナが混じる。
这是一个中文句子，没有空格。
이것은 한국어 문장입니다. 띄어쓰기가 있다.
ᎣᏏᏲ, ᏙᎯᏧ? 😀👍🏽 𝔘𝔫𝔦𝔠𝔬𝔡𝔢
""".strip().split("\n")
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"


def train(kind: str, sentences: Sequence[str] = SENTENCES * 3, size: int = 1500) -> Tokenizer:
    """Train a tokenizer of mmBERT's, XLM-R's or EuroBERT's form."""
    alphabet = pre_tokenizers.ByteLevel.alphabet() if kind == "split" else []
    trainer: BpeTrainer | UnigramTrainer = BpeTrainer(
        vocab_size=size,
        special_tokens=[*ROBERTA, *(f"<0x{byte:02X}>" for byte in range(256))],
        initial_alphabet=alphabet,
        limit_alphabet=1000,
        show_progress=False,
    )
    if kind == "byte fallback":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    elif kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.NFKC()
        steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        trainer = UnigramTrainer(
            vocab_size=size - 600, special_tokens=ROBERTA, unk_token="<unk>", show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.BPE())
        split = pre_tokenizers.Split(Regex(SPLIT), "isolated")
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.add_special_tokens(["<subj>", "[DRUG]"])
    between = "</s>:0 </s>:0" if kind == "unigram" else "</s>:0"
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s>:0 $A:0 </s>:0",
        pair=f"<s>:0 $A:0 {between} $B:0 </s>:0",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")],
    )
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> Path:
    """Write a tokenizer as `transformers` does, with the names of its roles beside it."""
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    config = {f"{role}_token": name for role, name in names.items()}
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module", params=["byte fallback", "unigram", "split"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(train(request.param), tmp_path_factory.mktemp("any") / "model")


def test_ids_are_those_of_transformers_in_all_scripts(folder: Path, tmp_path: Path):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder)
    texts = [*SENTENCES, *(" ".join(pair) for pair in pairwise(SENTENCES)), "a <subj> b[DRUG]c"]
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    vocabulary = read_vocabulary(str(folder))
    assert vocabulary.is_foreign
    starts = np.ones(len(texts), bool)
    ids, offsets = vocabulary.text_tokenizer().encode(pa.array(texts), starts)
    assert [ids[start:stop].tolist() for start, stop in pairwise(offsets)] == expected
    ours = TextTokenizer(folder)
    assert ours.token_ids(texts) == expected
    row = ours.row(*ours.token_ids(["a b", "c"]), max_length=64)
    assert row.input_ids.tolist() == theirs("a b", "c")["input_ids"]
    # The names of special tokens in a text are text.
    roles = {vocabulary.ids[name] for name in ("<s>", "</s>", "<pad>", "<mask>")}
    assert roles.isdisjoint(ours.token_ids(["a <s> b</s> <mask><pad>"])[0])
    # What is written says the same.
    for name, content in vocabulary_files(vocabulary).items():
        (tmp_path / name).write_bytes(content)
    assert (
        AutoTokenizer.from_pretrained(tmp_path)(texts[:3])["input_ids"]
        == (theirs(texts[:3])["input_ids"])
    )
    assert read_vocabulary(str(tmp_path)) == vocabulary


@needs_shared_data
@pytest.mark.slow
def test_ids_are_those_of_transformers_on_texts_of_the_corpora(folder: Path):
    from transformers import AutoTokenizer

    texts: list[str] = []
    for name in ("enwiki-hf-00000-of-00002", "kowiki-hf"):
        batches = pq.ParquetFile(DATA / "wikipedia" / f"{name}.parquet").iter_batches(100)
        lines = "\n".join(next(batches)["text"].to_pylist()).split("\n")
        texts += [line for line in lines if line][:1000]
    with lzma.open(DATA / "ud" / "ud-dev-paragraphs.jsonl.xz", "rt") as file:
        treebanks = [json.loads(line)["paragraphs"] for line in file]
    paragraphs = [" ".join(text for text, *_ in each) for bank in treebanks for each in bank]
    texts += random.Random(0).sample(paragraphs, 3000)
    assert len(texts) == 5000
    expected = AutoTokenizer.from_pretrained(folder)(texts, add_special_tokens=False)["input_ids"]
    starts = np.ones(len(texts), bool)
    ids, offsets = read_vocabulary(str(folder)).text_tokenizer().encode(pa.array(texts), starts)
    assert [ids[start:stop].tolist() for start, stop in pairwise(offsets)] == expected
    assert TextTokenizer(folder).token_ids(texts) == expected


def test_words_begin_at_spaces_and_a_document_is_read_like_its_sentences(folder: Path):
    vocabulary = read_vocabulary(str(folder))
    ids, _ = vocabulary.text_tokenizer().encode(pa.array(["The quick fox", "", "didn't."]))
    tokens = [vocabulary.readable[token] for token in ids]
    assert "".join(tokens).lstrip("▁") == "The▁quick▁fox▁didn't."
    starts = [vocabulary.readable[token][:2] for token in ids if not vocabulary.continues[token]]
    spaced = [start for start in starts if start.startswith("▁")]
    assert len(spaced) >= 3 and any(start[0] in "'." for start in starts)
    whole, _ = vocabulary.text_tokenizer().encode(pa.array(["The quick fox didn't."]))
    assert whole.tolist()[1:] == ids.tolist()[1:]


@pytest.mark.parametrize("masking", ["token", "whole-word"])
def test_masks_spare_added_tokens_and_draw_ordinary_ones(tmp_path: Path, masking):
    vocabulary = read_vocabulary(str(save(train("unigram"), tmp_path / "model")))
    ids, _ = vocabulary.text_tokenizer().encode(pa.array(["a [DRUG] and <subj> b"] * 200))
    row = np.array([vocabulary.cls_id, *ids, vocabulary.sep_id])
    config = BuildConfig(masking=masking, mask_rate=0.4, max_length=4096, mask_split=(0, 100, 0))
    bounds, before = np.array([0, len(row)]), row.copy()
    positions, _ = mask_rows(
        row, bounds, np.array([len(row)]), vocabulary, config, np.random.default_rng(0)
    )
    assert not vocabulary.is_added[before[positions]].any() and len(positions) > 300
    assert vocabulary.is_ordinary[row[positions]].all()


def test_added_tokens_of_a_bert_are_found_in_text(tmp_path: Path):
    from transformers import AutoTokenizer

    words = Vocabulary(
        (*SPECIAL_TOKENS, *["a", "b", "d", "r", "u", "g", "e", "[", "]", "##a"]),
        Normalization(True, True),
    )
    tokenizer = words.tokenizer()
    tokenizer.add_special_tokens(["[DRUG]"])
    tokenizer.add_tokens(["Bad"])  # looked for in lower-cased text
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
    vocabulary = read_vocabulary(str(tmp_path))
    assert vocabulary.specials == Specials() and vocabulary.fingerprint != words.fingerprint
    texts = ["a [DRUG] b", "b a", "b[DRUG]", "a [SEP] b", "[drug]", "", "a BAD b"]
    ids, offsets = vocabulary.text_tokenizer().encode(pa.array(texts))
    found = [ids[start:stop].tolist() for start, stop in pairwise(offsets)]
    assert found == TextTokenizer(tmp_path).token_ids(texts)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text, ids_of_text in zip(texts, found, strict=True):
        if "[SEP]" not in text:
            assert ids_of_text == theirs(text, add_special_tokens=False)["input_ids"]
    assert vocabulary.sep_id not in found[3]


def test_a_tokenizer_without_special_tokens_around_a_text_is_refused(tmp_path: Path):
    tokenizer = train("unigram")
    tokenizer.post_processor = processors.ByteLevel()
    with pytest.raises(UserError, match="does not put one special token before a text"):
        read_vocabulary(str(save(tokenizer, tmp_path / "model")))


def test_what_cannot_be_compared_is_refused_before_the_work(tmp_path: Path, capsys):
    other = save(train("unigram"), tmp_path / "model")
    with pytest.raises(SystemExit):
        main(["vocab", "no documents", f"--output={tmp_path}/vocab", f"--compare={other}"])
    assert "Only WordPiece and byte-level vocabularies" in capsys.readouterr().err
