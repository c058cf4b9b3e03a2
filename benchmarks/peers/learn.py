"""Learn a byte-level BPE vocabulary from the lines of a text by gigatoken, one thread."""

import json
import os
import sys
import time
from importlib.metadata import version

os.environ.update(RAYON_NUM_THREADS="1")

import gigatoken

sentences, size = sys.argv[1:]
begin = time.process_time()
gigatoken.train_bpe(gigatoken.TextFileSource([sentences], separator="\n"), int(size), [])
seconds = time.process_time() - begin
print(json.dumps({"version": version("gigatoken"), "figure": seconds}))
