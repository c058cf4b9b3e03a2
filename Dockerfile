# Two images, with the versions of constraints.txt:
#
#     docker build -t clozeworks .                                 the commands, on CPUs
#     docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" -w /data clozeworks ingest corpus --output documents
#
#     docker build --target beam -t REGISTRY/clozeworks-beam .     Beam's SDK container, for workers of Dataflow, Flink, Spark
FROM apache/beam_python3.11_sdk:2.77.0 AS beam
# Of the isolated build, too; the two names are those of old and new versions of pip.
ENV PIP_CONSTRAINT=/clozeworks/constraints.txt PIP_BUILD_CONSTRAINT=/clozeworks/constraints.txt
COPY . /clozeworks
RUN pip install --no-cache-dir '/clozeworks[data]'
# Not root: what a job stages is installed below /tmp.
RUN useradd --create-home clozeworks
USER clozeworks

FROM python:3.11-slim AS commands
ENV PIP_CONSTRAINT=/clozeworks/constraints.txt PIP_BUILD_CONSTRAINT=/clozeworks/constraints.txt
# The CPU build of PyTorch first: PyPI's brings several gigabytes of CUDA.
COPY constraints.txt /clozeworks/
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch
COPY . /clozeworks
RUN pip install --no-cache-dir '/clozeworks[data,train]'
# Not root, whoever starts it; caches go where every user may write.
RUN useradd clozeworks
USER clozeworks
ENV HOME=/tmp
ENTRYPOINT ["clozeworks"]
