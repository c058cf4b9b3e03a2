"""Write the data card of documents and instances: ``README.md``, with the metadata of the Hugging
Face Hub, so that the directory can be published as it is.

It is made of the manifest alone, without time or machine, so that every run writes the same bytes.
"""

import re
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from .cards import render
from .languages import UNKNOWN
from .manifests import DocumentsManifest, InstancesManifest
from .schemas import DOCUMENTS, instances_schema

CARD = "README.md"
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(?=-|$)")
# The Hub's names, up to the tenth power of ten: 10^3, 10^4 and so on.
_UNITS = ("", "K", "M", "B", "T")
_TITLES = {
    "ingest": "Documents for pre-training a language model",
    "build": "Instances for pre-training a BERT encoder",
}


def data_card(manifest: DocumentsManifest | InstancesManifest) -> str:
    """Return the card of a directory with this manifest, as Markdown."""
    num_rows = sum(shard.rows for shard in manifest.shards)
    if isinstance(manifest, DocumentsManifest):
        schema = DOCUMENTS
    else:
        schema = instances_schema(manifest.tokenizer.size, packed=manifest.config.packs)
    return render(
        "pipeline/data_card.md.jinja",
        stage=manifest.stage,
        title=_TITLES[manifest.stage],
        languages=hub_languages(manifest.languages),
        size_category=size_category(num_rows),
        splits=_splits(manifest),
        features=[_feature(field) for field in schema],
    )


def hub_languages(languages: Mapping[str, int]) -> list[str]:
    """Return the languages as the Hub names them: codes of two or three letters, sorted.

    >>> hub_languages({"be-tarask": 3, "und": 1, "en": 2})
    ['be', 'en']
    """
    codes = set()
    for language in languages:
        code = _LANGUAGE_CODE.match(language)
        if code and language != UNKNOWN:
            codes.add(code[0])
    return sorted(codes)


def size_category(num_rows: int) -> str:
    """Return the Hub's category of a number of rows.

    >>> size_category(999), size_category(1000), size_category(54_321), size_category(3 * 10**12)
    ('n<1K', '1K<n<10K', '10K<n<100K', 'n>1T')
    """
    if num_rows < 1000:
        return "n<1K"
    if num_rows >= 10**12:
        return "n>1T"
    power = len(str(num_rows)) - 1
    return f"{_power_of_ten(power)}<n<{_power_of_ten(power + 1)}"


def _power_of_ten(power: int) -> str:
    return f"{10 ** (power % 3)}{_UNITS[power // 3]}"


def _feature(field: pa.Field) -> dict[str, str]:
    """Return a column as the Hub's ``dataset_info`` describes it."""
    if pa.types.is_list(field.type):
        return {"name": field.name, "list": str(field.type.value_type)}
    return {"name": field.name, "dtype": str(field.type)}


def _splits(manifest: DocumentsManifest | InstancesManifest) -> dict[str, Counter[str]]:
    """Return the rows and the bytes of each split, the splits by name."""
    splits: dict[str, Counter[str]] = {}
    for shard in sorted(manifest.shards, key=lambda shard: shard.split):
        splits.setdefault(shard.split, Counter()).update(rows=shard.rows, bytes=shard.bytes)
    return splits
