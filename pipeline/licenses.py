"""Check a licence's identifier as the Hugging Face Hub wants it in a card."""

import re
from difflib import get_close_matches

from .errors import UserError

_LIST = """
afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m
bigscience-bloom-rail-1.0 bigscience-openrail-m bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear
bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0
cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0
cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0 cdla-permissive-2.0 cdla-sharing-1.0
creativeml-openrail-m deepfloyd-if-license ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2
fair-noncommercial-research-license gemma gfdl gpl gpl-2.0 gpl-3.0 h-research intel-research isc
lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 lppl-1.3c mit
mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openmdw-1.0 openrail openrail++ osl-3.0 other pddl
postgresql unknown unlicense wtfpl zlib
"""
IDENTIFIERS = frozenset(_LIST.split())
"""All that the Hub takes: https://huggingface.co/docs/hub/repositories-licenses."""


def check_license(license: str | None) -> None:
    """Raise `UserError`, naming the identifier meant, unless this is one of the Hub's."""
    if license is None or license in IDENTIFIERS:
        return
    # "CC BY-SA 4.0" and SPDX's "GPL-3.0-only" are meant for these.
    plain = re.sub(r"[ _]+", "-", license.strip().lower())
    plain = re.sub(r"-(only|or-later)$", "", plain)
    hint = "; common ones are apache-2.0, mit, cc-by-4.0, cc-by-sa-4.0 and other"
    close = get_close_matches(plain, sorted(IDENTIFIERS), n=1, cutoff=0.7)
    if close:
        hint = f"; did you mean {close[0]}"
    raise UserError(
        f"`license` is {license}, which is not the identifier of a licence on the Hugging Face "
        f"Hub{hint}."
    )
