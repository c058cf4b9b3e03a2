"""Under torchrun, only the first process reports a mistake that all of them hit."""

import os
from datetime import timedelta

WAIT_S = 5


def is_reported_by_first_rank(message: str) -> bool:
    """Tell whether this is not the first of torchrun's processes and the first one reports the same message.

    They meet in the store that torchrun itself keeps, which exists before they join and after one of them has ended.
    If the first process does not report the message within `WAIT_S`, this one must.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or os.environ.get("WORLD_SIZE", "1") == "1":
        return False
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    key = f"clozeworks/error/{os.environ.get('TORCHELASTIC_RESTART_COUNT')}"
    wait = timedelta(seconds=WAIT_S)
    try:
        store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=wait)
        if os.environ["RANK"] == "0":
            store.set(key, message)
            return False
        return store.get(key).decode() == message
    except RuntimeError:  # the store was closed, or the wait timed out
        return False
