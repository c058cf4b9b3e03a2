"""Near-duplicates of documents beside datatrove's MinHash and text-dedup's, one process each.

    python -m benchmarks.near_duplicates PARQUET

PARQUET has columns ``id`` and ``text``. Ours reads the table, splits sentences, and removes
documents that share 80% of their 5-grams of words; what that costs beside the same `ingest`
without it is its own time. Datatrove's is all of its four steps; text-dedup gets the same
threshold, 5-grams and its faster hash. CPU time of whole processes.
"""

import sys
import tempfile
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from .peers import environment, print_figure, title
from .process import run_command, run_measured


def main(path: str) -> None:
    texts = pq.read_table(path, columns=["text"])["text"]
    megabytes = pc.call_function("sum", [pc.call_function("binary_length", [texts])]).as_py() / 1e6
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        output = f"--output={work / 'documents'}"
        plain, ours = (
            run_command("ingest", path, "--language=en", "--overwrite", output, *options)
            for options in ((), ("--near-duplicates=0.8",))
        )
        script = Path(__file__).parent / "peers" / "datatrove_minhash.py"
        datatrove = [environment("datatrove"), str(script), path, str(work / "datatrove")]
        dedup = [environment("text-dedup"), "-m", "text_dedup.minhash", "--path=parquet"]
        dedup += [f"--data_files={path}", "--split=train", "--column=text", "--num_proc=1"]
        dedup += [f"--output={work / 'out'}", f"--cache_dir={work / 'cache'}"]
        dedup += ["--threshold=0.8", "--ngram=5", "--hash_func=xxh3"]
        peers = {
            f"{title('datatrove')}, 14 buckets of 8 hashes": datatrove,
            f"{title('text-dedup')}, xxh3, 5-grams": dedup,
        }
        for name, command in peers.items():
            seconds = run_measured(command).cpu_s
            print_figure(
                f"near-duplicates of {megabytes:.0f} MB of text",
                f"{ours.cpu_s:.1f} s, of them {ours.cpu_s - plain.cpu_s:.1f} for these",
                name,
                f"{seconds:.1f} s",
                seconds / ours.cpu_s,
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
