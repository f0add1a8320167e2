"""Closes what instrumentation leaves open around streams that were left half-way.

Rules: it does nothing unless OpenTelemetry's instrumentation of gRPC is at work. That wraps each stream in a generator which sets a
context when it begins and takes it back when it ends. gRPC drops the generator of a stream that was left, and asyncio then closes
it in a task of its own, where the context can't be taken back: an error in the log for each stream. A generator that is dropped
is known at once, still in the task that ran it; closed there, all is well.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, cast

import grpc.aio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from types import AsyncGeneratorType

_INSTRUMENTATION: Final = "opentelemetry.instrumentation.grpc"


def is_instrumented() -> bool:
    """Whether servers that are made now will be instrumented."""
    return grpc.aio.server.__module__.startswith(_INSTRUMENTATION)


def close_left_streams() -> None:
    """Close generators of the instrumentation where they ran. Call it on the loop; it holds for as long as that runs."""
    of_loop = sys.get_asyncgen_hooks().finalizer

    def finalize(generator: AsyncGenerator[object, None]) -> None:
        # Only generators of functions come here, whatever the hook says that it takes.
        frame = cast("AsyncGeneratorType[object, None]", generator).ag_frame
        if frame is not None and frame.f_globals.get("__name__", "").startswith(_INSTRUMENTATION):
            try:
                # It awaits nothing when it ends, so one step ends it.
                generator.aclose().send(None)
            except StopIteration:
                return
        if of_loop is not None:
            of_loop(generator)

    sys.set_asyncgen_hooks(finalizer=finalize)
