# Images of the operator (target `operator`) and of the engine emulator (target `emulator`).
# Runs as any non-root uid with a read-only root file system; /tmp is the only writable place needed.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY operator operator
RUN /opt/venv/bin/python -m build --wheel --outdir /wheels

FROM ${BASE} AS install
COPY constraints.txt /src/
COPY --from=build /wheels /wheels
RUN python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check -c /src/constraints.txt /wheels/*.whl

# The Jobs that read and fetch models run from this image too, as speculative-weights.
FROM install AS operator-install
RUN /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check -c /src/constraints.txt \
    "$(echo /wheels/*.whl)[weights]"

FROM install AS emulator-install
RUN /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check -c /src/constraints.txt \
    "$(echo /wheels/*.whl)[emulator]"

FROM ${BASE} AS emulator
COPY --from=emulator-install /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8000
ENTRYPOINT ["vllm-emulator", "serve"]

FROM ${BASE} AS operator
COPY --from=operator-install /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["speculative-operator"]
