"""Files on this machine and in object stores, and the directories that commands write.

The functions on files, below, are used as ``storage.open_input(path)`` and so on.
"""

from .files import (
    NUM_READERS,
    absolute,
    exists,
    file_names,
    file_sizes,
    find_files,
    folder_names,
    free_bytes,
    glob_root,
    has_wildcard,
    is_remote,
    join,
    leads_out,
    list_files,
    open_input,
    read_bytes,
    remove,
    version_of,
    visible_names,
)
from .remote import download
