"""The floor: bytes from socket to socket on trio and nothing else; what no proxy can go below."""

import sys

import trio

PIECE_BYTES = 64 * 1024


async def _pour(source: trio.SocketStream, sink: trio.SocketStream, both: trio.CancelScope) -> None:
    try:
        async for piece in source:
            await sink.send_all(piece)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    both.cancel()


async def _main(port: int, upstream: int) -> None:
    async def serve(client: trio.SocketStream) -> None:
        behind = await trio.open_tcp_stream("127.0.0.1", upstream)
        async with behind, trio.open_nursery() as pair:
            pair.start_soon(_pour, client, behind, pair.cancel_scope)
            pair.start_soon(_pour, behind, client, pair.cancel_scope)

    await trio.serve_tcp(serve, port, host="127.0.0.1")


if __name__ == "__main__":
    trio.run(_main, int(sys.argv[1]), int(sys.argv[2]))
