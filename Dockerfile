# syntax=docker/dockerfile:1

# One base for both stages. To build on exactly one image, name it with its digest:
#   docker build --build-arg PYTHON=python:3.11.14-slim-bookworm@sha256:… .
ARG PYTHON=python:3.11.14-slim-bookworm

# Build: a virtual environment at the path where it will run, with what requirements.lock pins.
FROM ${PYTHON} AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    PIP_CONSTRAINT=requirements.lock PIP_BUILD_CONSTRAINT=requirements.lock
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY protos protos
COPY server server
COPY client client
# Not editable: the image needs no sources beside the installed ones. Without pip, which only whoever builds needs. Byte code is
# compiled here, because the file system is read-only where it runs.
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv --without-pip /opt/stepgraph \
 && python -m pip --python /opt/stepgraph/bin/python install --compile ".[server,fast,prometheus]"

# Run: the interpreter, that environment, and nothing that builds.
FROM ${PYTHON}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="stepgraph" \
      org.opencontainers.image.description="A gRPC service that runs agent graphs durably." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# /data may be written by any user, as /tmp may: a named volume is made with its mode, and works with whatever --user it is mounted
# for. What stands in it is the server's alone (0600). It is no VOLUME: an anonymous one would look like storage and go with the
# container; without a volume the server says that it keeps its data nowhere.
RUN groupadd --gid 10001 stepgraph \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin stepgraph \
 && install --directory --owner=10001 --group=10001 --mode=1777 /data
COPY --from=build /opt/stepgraph /opt/stepgraph
ENV PATH=/opt/stepgraph/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# By number: Kubernetes can only check `runAsNonRoot` against a number.
USER 10001:10001
# The journal is the only thing written, so `--read-only` works.
WORKDIR /data
EXPOSE 7233
# Unhealthy while nothing can be written, and while it stops. Whoever starts unhealthy containers again (Swarm does) should ask
# with --live: a full disk is not mended by that.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 CMD ["stepgraph", "health"]
# A drain: sessions are told, what is durable stays, the rest is taken up on the next start. It takes up to 20 s with the default
# settings, and Docker waits 10: docker stop --timeout 40.
STOPSIGNAL SIGTERM
ENTRYPOINT ["stepgraph"]
# The server listens on loopback unless told otherwise, and refuses another address in plain text
# unless told so too. Inside a container loopback reaches nobody, so both are said here, where they
# are seen: publish the port to a trusted network only. No secret belongs into the image or its environment.
CMD ["serve", "--listen", "0.0.0.0:7233", "--insecure", "--data", "/data/stepgraph.db", "--log-format", "json"]
