"""SOCKS5 clients as peers of the tests: libraries, or plain sockets that another program redirects."""

import argparse
import asyncio
import socket
import sys
import threading
import time


def connect(options):
    target = (options.host, options.port)
    if options.client == "plain":
        return socket.create_connection(target)
    if options.client == "pysocks":
        import socks

        login = options.user.split(":") if options.user else ()
        return socks.create_connection(
            target, None, None, socks.SOCKS5, "127.0.0.1", options.proxy, True, *login
        )
    from python_socks.sync import Proxy

    return Proxy.from_url(options.url(), rdns=True).connect(*target)


def read_all(connection):
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def write_all(connection, data):
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def pipe(options):
    """Sends standard input, ends that direction, and writes what comes."""
    connection = connect(options)
    if options.idle:
        time.sleep(options.idle)
    writer = threading.Thread(target=write_all, args=(connection, sys.stdin.buffer.read()))
    writer.start()
    sys.stdout.buffer.write(read_all(connection))
    writer.join()


def answer(options):
    """Receives to the end of that direction, and only then sends the same."""
    connection = connect(options)
    data = read_all(connection)
    write_all(connection, data)


def udp(options):
    """Sends datagrams, each of which comes back."""
    if options.client == "pysocks":
        import socks

        association = socks.socksocket(socket.AF_INET, socket.SOCK_DGRAM)
        association.set_proxy(socks.SOCKS5, "127.0.0.1", options.proxy, True)
    else:
        association = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    association.settimeout(60)
    data = sys.stdin.buffer.read()
    for length in (1, 100, len(data)):
        association.sendto(data[:length], (options.host, options.port))
        assert association.recv(1 << 16) == data[:length], length


async def requests(options):
    """Sends an HTTP request on each of many connections at once."""
    from aiohttp import ClientSession, ClientTimeout
    from aiohttp_socks import ProxyConnector

    connector = ProxyConnector.from_url(options.url(), rdns=True, limit=0, force_close=True)
    content = sys.stdin.buffer.read()

    async def request(i, session):
        data = b"%d: " % i + content
        async with session.put(f"http://{options.host}:{options.port}/", data=data) as response:
            assert await response.read() == data, f"request {i}"

    async with ClientSession(connector=connector, timeout=ClientTimeout(total=120)) as session:
        await asyncio.gather(*(request(i, session) for i in range(options.connections)))


async def serve_ssh(options):
    """Lets everybody in, and runs `cat`, whatever the command is."""
    import asyncssh

    class Server(asyncssh.SSHServer):
        def begin_auth(self, username):
            return False

    async def cat(process):
        process.stdout.write(await process.stdin.read())
        process.exit(0)

    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        options.host, 0, server_factory=Server, server_host_keys=[key], process_factory=cat, encoding=None
    )
    print(server.get_port(), flush=True)
    await asyncio.Future()


class Options(argparse.Namespace):
    def url(self):
        return f"socks5://{self.user + '@' if self.user else ''}127.0.0.1:{self.proxy}"


cases = {case.__name__: case for case in (pipe, answer, udp, requests, serve_ssh)}
parser = argparse.ArgumentParser()
parser.add_argument("case", choices=cases)
parser.add_argument("client", choices=["plain", "pysocks", "python-socks", "aiohttp-socks"])
parser.add_argument("host")
parser.add_argument("port", type=int)
parser.add_argument("--proxy", type=int)
parser.add_argument("--user")
parser.add_argument("--idle", type=float)
parser.add_argument("--connections", type=int)
options = parser.parse_args(namespace=Options())
try:
    done = cases[options.case](options)
    if done:
        asyncio.run(done)
except ModuleNotFoundError as error:
    sys.exit(f"{error}; run `make setup-test`")
