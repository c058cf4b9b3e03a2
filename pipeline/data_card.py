"""The data card of documents and instances: ``README.md``, with the metadata of the Hugging Face
Hub, so that the directory can be published as it is.
"""

import re
from collections import Counter
from collections.abc import Mapping

from .languages import UNKNOWN
from .manifests import DocumentsManifest, InstancesManifest

CARD = "README.md"


def data_card(manifest: DocumentsManifest | InstancesManifest) -> str:
    """Return the card in Markdown, of the manifest alone: every run writes the same bytes."""
    if isinstance(manifest, DocumentsManifest):
        title = "Documents for pre-training a language model"
        rows = "Each row is a text, cleaned and cut into sentences."
    else:
        title = "Instances for pre-training a BERT encoder"
        rows = "Each row holds token ids with masks, and the tokens to predict."
    languages = hub_languages(manifest.languages)
    splits = {}
    for shard in sorted(manifest.shards, key=lambda shard: shard.split):
        sizes = splits.setdefault(shard.split, Counter())
        sizes.update(num_bytes=shard.bytes, num_examples=shard.rows)
    # As `DatasetCardData` of `huggingface_hub` writes it, which takes long to import.
    lines = ["language:"] if languages else []
    for code in languages:
        is_word = code in ("no", "on", "off", "yes")  # which YAML would take for a truth value
        lines.append(f"- '{code}'" if is_word else f"- {code}")
    lines += ["license: unknown", "task_categories:", "- fill-mask", f"pretty_name: {title}"]
    lines += ["tags:", "- clozeworks", "configs:", "- config_name: default", "  data_files:"]
    for split in splits:
        lines += [f"  - split: {split}", f"    path: {split}-*.parquet"]
    # `datasets` keeps what it loaded under this information: without the sizes, of two
    # directories of one name it would load the first again.
    lines += ["dataset_info:", "  splits:"]
    for split, sizes in splits.items():
        lines.append(f"  - name: {split}")
        lines += [f"    {name}: {size}" for name, size in sizes.items()]
    metadata = "\n".join(lines)
    return f"""---
{metadata}
---

# {title}

{rows} `clozeworks {manifest.stage}` wrote the rows; `manifest.json` has its options,
and counts of what was read, kept and left out.

```python
from datasets import load_dataset

data = load_dataset(".")  # this directory, or its name on the Hub
```

The licences of the texts are not recorded: look them up before you publish them, and name them in `license` above.
"""  # noqa: E501


def hub_languages(languages: Mapping[str, int]) -> list[str]:
    """Return the languages as the Hub names them, sorted: "be" for "be-tarask", none for "und"."""
    codes = {language.partition("-")[0] for language in languages.keys() - {UNKNOWN}}
    return sorted(code for code in codes if re.fullmatch("[a-z]{2,3}", code))
