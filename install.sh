#!/usr/bin/env bash
# Install Clozeworks with the tested versions of everything (constraints.txt) into .venv:
#
#     ./install.sh '.[data,train]'
#
# It uses uv if that is there, else venv and pip; either verifies the hashes. Without an NVIDIA GPU
# it prefers PyTorch's CPU build, which saves 2.5 GB but is not on PyPI, and so has other hashes.
set -euo pipefail
cd "$(dirname "$0")"

PYTHONS="python3.11 python3.12 python3.13 python3.14"  # the tested ones
TORCH_INDEX=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}
# Downloads for Python 3.11 on x86-64 Linux.
SIZE_WITH_CUDA="3.0 GB"
SIZE_FOR_CPUS="0.5 GB"

find_python() {
    local python
    for python in ${PYTHON:-$PYTHONS}; do
        if "$python" --version >/dev/null 2>&1; then  # pyenv has names for versions that are not there
            echo "$python"
            return
        fi
    done
}

make_environment() {
    local python
    python=$(find_python)
    if [ -n "$UV" ]; then
        "$UV" venv --quiet --python "${python:-3.11}" .venv  # uv fetches a Python if there is none
    elif [ -n "$python" ]; then
        # One that failed halfway would be taken for an environment the next time.
        "$python" -m venv .venv || { rm -rf .venv; exit 2; }
    else
        echo "Python 3.11 to 3.14 is needed, and there is none. Install one, such as python3.12" \
            "and python3.12-venv of Debian and Ubuntu, or uv, which fetches its own" \
            "(https://docs.astral.sh/uv). \`make PYTHON=PATH\` names one." >&2
        exit 2
    fi
}

install() {
    if [ -n "$UV" ]; then
        "$UV" pip install --quiet --python .venv/bin/python "$@"
    else
        pip_install --no-require-hashes "$@"
    fi
}

pip_install() {
    # As uv: modules are compiled when they are first imported, and most never are. setuptools warns
    # of editable installations.
    PYTHONWARNINGS=ignore .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile "$@"
}

has_gpu() {
    compgen -G '/dev/nvidia[0-9]*' >/dev/null || nvidia-smi --list-gpus >/dev/null 2>&1
}

is_reachable() {
    .venv/bin/python - "$1" >/dev/null 2>&1 <<'EOF'
import sys, urllib.request
urllib.request.urlopen(sys.argv[1], timeout=5).close()
EOF
}

# Tell whether a requirement, such as '.[data,train]', comes with PyTorch.
needs_torch() {
    .venv/bin/python - "$@" <<'EOF'
import re, sys, tomllib

with open("pyproject.toml", "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]

def needs_torch(requirement):
    name, listed = re.match(r"([^\[]*)(?:\[(.*?)\])?", requirement).groups()
    if re.match(r"torch\b", name):
        return True
    is_ours = name.strip() in (".", "./", "clozeworks")
    asked = listed.split(",") if is_ours and listed else ()
    return any(needs_torch(each) for extra in asked for each in extras.get(extra.strip(), ()))

sys.exit(not any(map(needs_torch, sys.argv[1:])))
EOF
}

install_torch() {
    if has_gpu; then
        echo "To download: about $SIZE_WITH_CUDA, most of it PyTorch with CUDA for this machine's GPU."
    elif is_reachable "$TORCH_INDEX/torch/"; then
        echo "To download: about $SIZE_FOR_CPUS, with PyTorch's CPU build: there is no NVIDIA GPU."
        # Without its dependencies: those come from PyPI, in the versions of constraints.txt.
        install --no-deps --index-url "$TORCH_INDEX" "$(grep -o '^torch==[^ ]*' constraints.txt)" && return
        echo "That failed; PyPI's PyTorch is taken instead, with CUDA: $SIZE_WITH_CUDA."
    else
        echo "To download: about $SIZE_WITH_CUDA. There is no NVIDIA GPU, but $TORCH_INDEX, where" \
            "PyTorch's CPU build is, does not answer: PyPI's comes, with CUDA."
    fi
}

# Of setuptools, too, which builds the package on its own.
export PIP_BUILD_CONSTRAINT=$PWD/constraints.txt UV_BUILD_CONSTRAINT=$PWD/constraints.txt
UV=$(command -v uv || true)
[ -x .venv/bin/python ] || make_environment
installer=uv
if [ -z "$UV" ]; then
    installer=pip
    # Older ones cannot install the checkout, which has no hash, while they verify the others.
    sed -n '/^pip==/,/[^\\]$/p' constraints.txt | pip_install --requirement /dev/stdin
fi
echo "Installing $* into .venv, for $(.venv/bin/python --version), with $installer."
# Elsewhere PyPI's PyTorch is for CPUs.
if [ "$(uname)" = Linux ] && needs_torch "$@" && ! .venv/bin/python -c 'import torch' 2>/dev/null; then
    install_torch
fi
install --constraint constraints.txt --editable "$@"
