"""One thread computes, here and in every process that a test starts.

The number of threads decides the order of sums, and with it the last bits that some tests compare; and threads that
wait for each other beside other processes would slow the tests down.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"
