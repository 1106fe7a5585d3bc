"""aioice's TURN client against the relay: what it sends to a peer on loopback comes back.

    aioice_client.py HOST:PORT udp|tcp|tls USER PASSWORD

aioice is what aiortc makes its calls with. It sends by a channel, and refreshes its allocation.
"""

import asyncio
import ssl
import sys

from aioice import turn

MESSAGES = 100


class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.transport.sendto(data, addr)


class Client(asyncio.DatagramProtocol):
    def __init__(self):
        self.came = asyncio.Queue()

    def datagram_received(self, data, addr):
        self.came.put_nowait((data, addr))


async def main(server, way, user, password):
    host, port = server.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    peer, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    peer_addr = peer.get_extra_info("sockname")
    context = False
    if way == "tls":
        # Its own certificate.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    transport, client = await turn.create_turn_endpoint(
        Client,
        server_addr=(host, int(port)),
        username=user,
        password=password,
        lifetime=600,
        ssl=context,
        transport="udp" if way == "udp" else "tcp",
    )
    relayed = transport.get_extra_info("sockname")
    for number in range(MESSAGES):
        sent = f"message {number}".encode()
        transport.sendto(sent, peer_addr)
        came, sender = await asyncio.wait_for(client.came.get(), 20)
        assert (came, sender) == (sent, peer_addr), f"{came} from {sender} instead of {sent}"
    transport.close()
    peer.close()
    print(f"aioice by {way}: {MESSAGES} of {MESSAGES} by {relayed}")


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 60))
