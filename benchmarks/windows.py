"""Time and memory of one windowed ModernBERT layer on the CPU, by the length of the rows.

    python -m benchmarks.windows [--tokens 8192] [--model mini] [--dtype float32]

Forward and backward pass on one thread; each length in a process of its own, whose peak memory
counts.
"""

import argparse
import resource
import subprocess
import sys
import time

import torch
from clozeworks.model.encoders.attention import PaddedRows
from clozeworks.model.encoders.modernbert import ModernBertModel, Rotation
from clozeworks.model.encoders.modernbert_config import ModernBertConfig

LENGTHS = (512, 1024, 2048, 4096, 8192)
WINDOWED_LAYER = 1
"""The layer before attends to whole rows."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--length", type=int, help="measure this length here, and print it")
    arguments = parser.parse_args()
    if arguments.length:
        measure(arguments)
        return
    print("tokens a row  us a token  KiB a token", flush=True)
    for length in LENGTHS:
        command = [sys.executable, "-m", "benchmarks.windows", *sys.argv[1:], "--length"]
        subprocess.run([*command, str(length)], check=True)


def measure(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    num_tokens = arguments.tokens
    num_rows = num_tokens // arguments.length
    shape = ModernBertConfig.named(
        arguments.model,
        max_position_embeddings=arguments.length,
        **ModernBertConfig.vocabulary_fields(100, 0, 2, 3),
    )
    layer = ModernBertModel(shape).layers[WINDOWED_LAYER]
    layout = PaddedRows(num_rows, arguments.length, None, None, False)
    positions = torch.arange(arguments.length).repeat(num_rows)
    head_size = shape.hidden_size // shape.num_attention_heads
    rotation = Rotation.at(positions, head_size, shape.local_rope_theta)
    states = torch.randn(num_tokens, shape.hidden_size, requires_grad=True)
    dtype = getattr(torch, arguments.dtype)
    before = peak_kib()
    seconds = []
    for _ in range(3):
        started = time.process_time()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            layer(states, layout, rotation).sum().backward()
        seconds.append(time.process_time() - started)
    microseconds = 1e6 * min(seconds) / num_tokens
    memory = (peak_kib() - before) / num_tokens
    print(f"{arguments.length:12,}  {microseconds:10.1f}  {memory:11.1f}", flush=True)


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
