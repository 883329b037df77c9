# Images of the operator (target `operator`) and of the engine emulator (target `emulator`); `make image` builds both.
# Runs as any non-root uid with a read-only root file system; /tmp is the only writable place needed.
#
# What is released is built on a base by digest, which `make image` resolves and records: a tag may be another image
# tomorrow. Every package is installed by hash (requirements/, made by `make lock`), the build front end included.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
WORKDIR /src
COPY requirements/build.txt requirements/
RUN python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
RUN /opt/venv/bin/python -m build --wheel --no-isolation --outdir /wheels

# The emulators are the laboratory's, which imports the operator's package: their image holds both wheels.
FROM build AS build-lab
COPY lab lab
RUN /opt/venv/bin/python -m build --wheel --no-isolation --outdir /wheels lab

# The Jobs that read and fetch models run from this image too, as speculative-weights. Left out is what nothing imports:
# pip, the tests of packages, the calls by name of the asynchronous Kubernetes client (its transport is used), and the
# bytecode of modules that are not imported. The last line imports every module, and so fails where one needs it.
FROM ${BASE} AS operator-install
COPY requirements/operator.txt /src/
COPY --from=build /wheels /wheels
ENV PIP_PYTHON=/opt/venv/bin/python PIP_NO_COMPILE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv --without-pip /opt/venv \
 && pip install --require-hashes --no-deps -r /src/operator.txt \
 && pip install --no-index --no-deps /wheels/*.whl \
 && find /opt/venv -type d -name tests -prune -exec rm -r {} + \
 && rm -r /opt/venv/lib/python3*/site-packages/kubernetes/aio/client/api \
 && /opt/venv/bin/python -c 'import importlib, pkgutil, speculative_operator as it; \
      [importlib.import_module(one.name) for one in pkgutil.walk_packages(it.__path__, "speculative_operator.") \
       if ".payload." not in one.name and "__main__" not in one.name]'

FROM ${BASE} AS emulator-install
COPY requirements/emulator.txt /src/
COPY --from=build-lab /wheels /wheels
RUN python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /src/emulator.txt \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-index --no-deps /wheels/*.whl

FROM ${BASE} AS emulator
ARG BASE VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="vllm-emulator" \
      org.opencontainers.image.description="Serves the API and metrics of inference engines without an accelerator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
COPY --from=emulator-install /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8000
ENTRYPOINT ["vllm-emulator", "serve"]

FROM ${BASE} AS operator
ARG BASE VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="speculative-operator" \
      org.opencontainers.image.description="Runs speculative decoding in production on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
COPY --from=operator-install /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["speculative-operator"]
