"""Run the quickstart's three data stages as a single Apache Beam pipeline, on any runner.

python examples/beam/one_job.py --source=examples/quickstart/corpus --output=demo

All other options are Beam's, for example ``--runner=FlinkRunner --flink_master=flink:8081``.
"""

import argparse
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from clozeworks.pipeline import (
    BuildConfig,
    BuildInstances,
    Ingest,
    IngestConfig,
    LearnVocabulary,
    VocabConfig,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run the pipeline, and wait for its end."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # or an option of Beam would be taken for one of these
    )
    parser.add_argument("--source", required=True, help="A file, a folder, a pattern, or hf:NAME.")
    parser.add_argument("--output", required=True, help="Folder for the three directories.")
    parser.add_argument("--shards", type=int, help="Number of training shards; default: by size.")
    options, beam_flags = parser.parse_known_args(arguments)

    documents = f"{options.output}/documents"
    vocab = f"{options.output}/vocab"
    instances = f"{options.output}/instances"
    ingest_config = IngestConfig(language="en", validation_share=0.08, shards=options.shards)

    # Without a version to be compatible with, DirectRunner downloads another runner, Prism.
    beam_options = PipelineOptions(beam_flags, update_compatibility_version=beam.__version__)
    # Leaving the block runs the pipeline, waits for it, and raises if the job has failed.
    with beam.Pipeline(options=beam_options) as pipeline:
        _ = (
            pipeline
            | Ingest(options.source, documents, ingest_config)
            | LearnVocabulary(documents, vocab, VocabConfig(size=2000))
            | BuildInstances(documents, vocab, instances, BuildConfig(max_length=32))
        )


if __name__ == "__main__":
    main()
