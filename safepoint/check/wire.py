"""What a follower and the server of a run say to each other (docs/format.md, "Over several nodes").

The greeting and the frames are those of `nodes.transfer`: both sides prove that they have the secret of this run
before anything else is read, and each word is signed. What has bytes with it says how many, and their digest.
"""

from __future__ import annotations

import os
import socket
from typing import Any, NamedTuple

from safepoint.nodes.transfer import Channel, Peer, Refused, digest, whole
from safepoint.session import __version__

SERVER = "SAFEPOINT_CHECK_SERVER"  # in the environment: port, secret in hexadecimal, addresses
SECRET = 32  # bytes
NAME = "safepoint check"  # instead of an address in the greeting: the follower finds by itself which of them it reaches
BLOB = 64 << 20  # bytes with a word, at most
RUNS = 512  # pieces of `.calls` in a word
CLOCKS = 4  # times that a follower asks for the clock, at first with `hello`
VERSION = __version__


class Where(NamedTuple):
    """Of the server, as its environment has it."""

    port: int
    secret: bytes
    addresses: tuple[str, ...]

    def text(self) -> str:
        return " ".join((str(self.port), self.secret.hex(), *self.addresses))

    def text_of_addresses(self) -> str:
        """`port 40123 of 10.0.0.1, a`."""
        return f"port {self.port} of {', '.join(self.addresses)}"

    @property
    def peer(self) -> Peer:
        return Peer(NAME, self.port, self.secret)


def where(text: str) -> Where:
    """Raises ValueError."""
    port, secret, *addresses = text.split()
    return Where(int(port), bytes.fromhex(secret), tuple(addresses))


def put(channel: Channel, do: str, blob: bytes = b"", **words: Any) -> None:
    """Say this, with these bytes. Raises OSError."""
    if not blob:
        channel.say(do=do, **words)
        return
    channel.say(do=do, size=len(blob), sum=digest(blob), **words)
    channel.give([blob])


def take(channel: Channel) -> tuple[dict[str, Any], bytes]:
    """What the other side says, with its bytes. Raises OSError, `Refused`."""
    words = channel.hear()
    if "size" not in words:
        return words, b""
    blob = b"".join(channel.take(whole(words, "size", 0, BLOB)))
    if len(blob) != words["size"] or digest(blob) != words.get("sum"):
        raise Refused("its bytes are not what it vouches for")
    return words, blob


def addresses() -> tuple[str, ...]:
    """By which other nodes may reach this host, the likeliest first; SAFEPOINT_ADDRESS says it alone."""
    if told := os.environ.get("SAFEPOINT_ADDRESS"):
        return (told,)
    found = [address for address in (*_of_interfaces(), socket.gethostname()) if not address.startswith("127.")]
    return (*dict.fromkeys(found), "127.0.0.1")  # the last: containers of one host may share its loopback


def _of_interfaces() -> list[str]:
    """Of IPv4. None are known where the system does not tell."""
    try:
        import fcntl
        import struct
    except ImportError:
        return []
    found = list[str]()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
            except OSError:  # it has none
                continue
            found.append(socket.inet_ntoa(answer[20:24]))
    return found
