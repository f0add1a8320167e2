# Build: a virtual environment at the path where it will run, with what requirements.lock pins.
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/stepgraph
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY . .
# Not editable: the image needs no sources beside the installed ones. Byte code is compiled here,
# because the file system is read-only where it runs.
RUN PIP_CONSTRAINT=requirements.lock PIP_BUILD_CONSTRAINT=requirements.lock \
    /opt/stepgraph/bin/pip install --compile ".[server,fast]"

# Run: the interpreter, that environment, and nothing that builds.
FROM python:3.11-slim
RUN groupadd --gid 10001 stepgraph \
 && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin stepgraph \
 && install --directory --owner=10001 --group=10001 --mode=0700 /data
COPY --from=build /opt/stepgraph /opt/stepgraph
ENV PATH=/opt/stepgraph/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# By number: Kubernetes can only check `runAsNonRoot` against a number.
USER 10001:10001
# The journal is the only thing written, so `--read-only` works.
VOLUME ["/data"]
WORKDIR /data
EXPOSE 7233
# A drain: sessions are told, what is durable stays, the rest is recovered on the next start.
STOPSIGNAL SIGTERM
ENTRYPOINT ["stepgraph"]
# The server listens on loopback unless told otherwise, and refuses another address in plain text
# unless told so too. Inside a container loopback reaches nobody, so both are said here, where they
# are seen: publish the port to a trusted network only, or replace these flags by a certificate and
# tokens, mounted at run time. No secret belongs into the image or its environment.
CMD ["serve", "--listen", "0.0.0.0:7233", "--insecure", "--data", "/data/stepgraph.db"]
