"""Of the processes that torchrun started, the first one alone tells a mistake that all of them met."""

import os
from datetime import timedelta

WAIT_S = 5


def is_reported_by_first_rank(message: str) -> bool:
    """Tell whether this is not the first of torchrun's processes, and the first one tells the same message.

    They meet in the store that torchrun itself keeps, which is there before they join and when one of them has gone.
    What the first one does not meet within `WAIT_S` is this process's own to tell.
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
    except RuntimeError:  # the store has gone, or nothing came in time
        return False
