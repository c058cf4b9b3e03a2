# Two images, with the versions and hashes of constraints.txt, pip's own first: older ones do not verify them here. To pin the
# base images, too: --build-arg PYTHON_IMAGE=python:3.11-slim@DIGEST, which `docker buildx imagetools inspect IMAGE` prints.
#
#     docker build -t clozeworks .                                 the commands, on CPUs
#     docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" -w /data clozeworks ingest corpus --output documents
#
#     docker build --target beam -t REGISTRY/clozeworks-beam .     Beam's SDK container, for workers of Dataflow, Flink, Spark
ARG BEAM_IMAGE=apache/beam_python3.11_sdk:2.77.0
ARG PYTHON_IMAGE=python:3.11-slim
FROM $BEAM_IMAGE AS beam
# Of the isolated build, too.
ENV PIP_BUILD_CONSTRAINT=/clozeworks/constraints.txt
COPY . /clozeworks
RUN sed -n '/^pip==/,/[^\\]$/p' /clozeworks/constraints.txt | pip install --requirement /dev/stdin
RUN pip install --no-cache-dir --no-require-hashes --constraint /clozeworks/constraints.txt '/clozeworks[data]'
# Not root: what a job stages is installed below /tmp.
RUN useradd --create-home clozeworks
USER clozeworks

FROM $PYTHON_IMAGE AS commands
ENV PIP_BUILD_CONSTRAINT=/clozeworks/constraints.txt
COPY constraints.txt /clozeworks/
RUN sed -n '/^pip==/,/[^\\]$/p' /clozeworks/constraints.txt | pip install --requirement /dev/stdin
# The CPU build of PyTorch first: PyPI's brings several gigabytes of CUDA. Its hash is not PyPI's.
RUN pip install --no-cache-dir --no-deps --index-url https://download.pytorch.org/whl/cpu $(grep -o '^torch==[^ ]*' /clozeworks/constraints.txt)
COPY . /clozeworks
RUN pip install --no-cache-dir --no-require-hashes --constraint /clozeworks/constraints.txt '/clozeworks[data,train]'
# Not root, whoever starts it; caches go where every user may write.
RUN useradd clozeworks
USER clozeworks
ENV HOME=/tmp
ENTRYPOINT ["clozeworks"]
