"""A collector that takes all that comes and does nothing with it: `python -m benchmarks.trace_sink`. It prints its address.

It is a process of its own, so that what it costs is not counted as the server's.
"""

from __future__ import annotations

import asyncio

import grpc.aio

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class _Sink(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method != _EXPORT:
            return None

        async def export(_: bytes, __: object) -> bytes:
            return b""  # an ExportTraceServiceResponse without a word

        return grpc.unary_unary_rpc_method_handler(export)


async def main() -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([_Sink()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"ready 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
