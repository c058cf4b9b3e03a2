"""Write a vector of each text of a bucket, by an encoder's ONNX graph; see README.md."""

import argparse
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io import WriteToParquet
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from apache_beam.ml.inference.onnx_inference import OnnxModelHandlerNumpy
from apache_beam.options.pipeline_options import PipelineOptions
from clozeworks.pipeline import ReadDocuments
from tokenizers import Tokenizer

SCHEMA = pa.schema({"doc_id": pa.string(), "vector": pa.list_(pa.float32())})


def token_ids(document: dict[str, Any], tokenizer: Tokenizer) -> tuple[str, np.ndarray]:
    """Return the id of a text, and the ids of its first 512 tokens."""
    ids = tokenizer.encode(" ".join(document["paragraphs"])).ids
    return f"{document['source']}:{document['id']}", np.array(ids)


def mean_states(session: Any, texts: Any, _: Any = None) -> np.ndarray:
    """Return the mean of the last hidden states of each text."""
    mask = np.arange(max(map(len, texts))) < np.array([[len(text)] for text in texts])
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate(texts)
    inputs = {"input_ids": ids, "attention_mask": mask.astype(np.int64), "token_type_ids": ids * 0}
    wanted = {each.name: inputs[each.name] for each in session.get_inputs()}
    (states,) = session.run(["last_hidden_state"], wanted)
    return (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)


def main() -> None:
    """Run the pipeline, and wait for its end."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--source", "--graph", "--output"):
        parser.add_argument(name, required=True)
    options, beam_flags = parser.parse_known_args()
    graph = OnnxModelHandlerNumpy(f"{options.graph}/model.onnx", inference_fn=mean_states)
    # Without a version to be compatible with, DirectRunner downloads another runner, Prism.
    beam_options = PipelineOptions(beam_flags, update_compatibility_version=beam.__version__)
    with beam.Pipeline(options=beam_options) as pipeline:
        vocabulary = FileSystems.open(f"{options.graph}/tokenizer.json").read()
        tokenizer = Tokenizer.from_buffer(vocabulary)
        tokenizer.enable_truncation(512)
        _ = (
            pipeline
            | ReadDocuments(options.source)
            | "Tokenize" >> beam.Map(token_ids, tokenizer)
            | "Infer" >> RunInference(KeyedModelHandler(graph))
            | "Rows" >> beam.MapTuple(lambda key, found: {"doc_id": key, "vector": found.inference})
            | "Write" >> WriteToParquet(options.output, SCHEMA, file_name_suffix=".parquet")
        )


if __name__ == "__main__":
    main()
