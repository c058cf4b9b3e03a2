#!/usr/bin/env bash
# Use what a release holds as whoever installs it does, away from the checkout:
#
#     tests/try_dist.sh dist            the libraries of .venv, so that nothing is downloaded
#     tests/try_dist.sh dist --whole    all libraries installed anew, in the tested versions
set -euo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)
dist=$(cd "$1" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"$checkout/.venv/bin/python" -m venv env
pip=("$checkout/.venv/bin/python" -m pip --python env/bin/python install --quiet --disable-pip-version-check)
if [ "${2:-}" = --whole ]; then
    "${pip[@]}" --no-require-hashes --constraint "$checkout/constraints.txt" "$(ls "$dist"/*.whl)[data,train]"
else
    # A folder in a .pth file is a place to import from, but its own .pth files, and with them the checkout, are not read.
    "$checkout/.venv/bin/python" -c 'import click; print(click.__path__[0].removesuffix("/click"))' \
        >"$(echo env/lib/python3.*/site-packages)/libraries.pth"
    "${pip[@]}" --no-deps "$dist"/*.whl
fi
env/bin/python -c 'import clozeworks, sys; assert clozeworks.__file__.startswith(sys.prefix), clozeworks.__file__'

tar -xzf "$dist"/*.tar.gz
source=$(echo clozeworks-*/)
corpus=$source/examples/quickstart/corpus
env/bin/clozeworks corpus "$corpus" --output demo --language en --size 2000 --max-length 32
env/bin/clozeworks pretrain demo/instances --output demo/model --model tiny --steps 20 --batch-size 16 --device cpu
env/bin/clozeworks fill demo/model 'He was one [MASK] the first men on the moon.'
# The tests of the source distribution find all that they import.
(cd "$source" && "$checkout/.venv/bin/python" -m pytest -q -p no:cacheprovider --collect-only tests >/dev/null)
echo "The wheel and the source distribution in $dist work away from the checkout."
