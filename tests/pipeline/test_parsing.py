"""Files are parsed into typed values in any thread, also when a type is new to two of them."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

# Two threads decode the same Struct type for the first time at once. With msgspec's own
# `json.decode(content, type=...)` this process dies of a segmentation fault nearly every time.
TWO_THREADS = """
import sys, threading
from msgspec import Struct, defstruct
from clozeworks.pipeline.parsing import convert_values, decode_json

sys.setswitchinterval(1e-6)
content = b'{"count": 1, "inner": {"count": 1}, "inners": [{"count": 2}], "last": null}'
for number in range(int(sys.argv[1])):
    Inner = defstruct("Inner", [("count", int), ("names", dict[str, int], {})])
    fields = [("count", int), ("inner", Inner), ("inners", list[Inner]), ("last", Inner | None)]
    Outer = defstruct("Outer", fields)
    start = threading.Barrier(2)

    def decode(value, function):
        start.wait()
        function(value, Outer)

    plain = {"count": 1, "inner": {"count": 1}, "inners": [{"count": 2}], "last": None}
    threads = [
        threading.Thread(target=decode, args=(content, decode_json)),
        threading.Thread(target=decode, args=(plain, convert_values)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def decode_in_two_threads(num_types: int) -> int:
    command = [sys.executable, "-c", TWO_THREADS, str(num_types)]
    return subprocess.run(command, timeout=120).returncode


def test_two_threads_decode_a_new_type_at_once():
    assert decode_in_two_threads(500) == 0


@pytest.mark.slow
def test_two_threads_decode_a_new_type_at_once_in_many_fresh_processes():
    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(decode_in_two_threads, [20] * 20))
    assert codes == [0] * 20
