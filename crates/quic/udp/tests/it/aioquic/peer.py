"""aioquic as a peer of the tests: serves or fetches by HTTP/0.9 over QUIC (`hq-interop`)."""

import argparse
import asyncio

from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.tls import CipherSuite


def content(length):
    return bytes((i * 2654435761 & 0xFFFFFFFF) >> 24 for i in range(length))


async def answer(reader, writer):
    request = await reader.read()
    assert request.startswith(b"GET /"), request
    writer.write(content(int(request[5:])))
    writer.write_eof()


async def run_server(options, configuration):
    configuration.load_cert_chain("certificate.pem", "key.pem")

    def on_stream(reader, writer):
        asyncio.ensure_future(answer(reader, writer))
        # One update: another needs an acknowledgment of what left since.
        if options.update_keys and writer.get_extra_info("stream_id") == 0:
            writer.transport.protocol.request_key_update()

    await serve(
        options.host, options.port, configuration=configuration, retry=options.retry, stream_handler=on_stream
    )
    print("ready", flush=True)
    await asyncio.Future()


async def fetch(connection, length):
    reader, writer = await connection.create_stream()
    writer.write(b"GET /%d\r\n" % length)
    writer.write_eof()
    data = await reader.read()
    assert data == content(length), f"{len(data)} bytes came, or others than those of {length}"


async def run_client(options, configuration):
    configuration.load_verify_locations("certificate.pem")
    configuration.server_name = "localhost"
    for _ in range(options.connections):
        async with connect(options.host, options.port, configuration=configuration) as connection:
            if options.update_keys:
                await fetch(connection, options.length)
                connection.request_key_update()
            await asyncio.gather(*(fetch(connection, options.length) for _ in range(options.streams)))


parser = argparse.ArgumentParser()
parser.add_argument("role", choices=["serve", "fetch"])
parser.add_argument("port", type=int)
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--retry", action="store_true")
parser.add_argument("--chacha20", action="store_true")
parser.add_argument("--update-keys", action="store_true")
parser.add_argument("--connections", type=int, default=1)
parser.add_argument("--streams", type=int, default=1)
parser.add_argument("--length", type=int, default=1 << 20)
options = parser.parse_args()
configuration = QuicConfiguration(is_client=options.role == "fetch", alpn_protocols=["hq-interop"])
if options.chacha20:
    configuration.cipher_suites = [CipherSuite.CHACHA20_POLY1305_SHA256]
asyncio.run((run_server if options.role == "serve" else run_client)(options, configuration))
