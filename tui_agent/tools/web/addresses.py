"""Parsing web addresses that a model wrote, and telling which network addresses are public.

An address is parsed once, strictly, and rebuilt from its parts: what was checked is what is requested, whatever another
parser would have read. A name is resolved once, and the connection goes to the network address that was checked, so
that a name server cannot answer differently in between.
"""

import asyncio
import re
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from tui_agent.regex import regex
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.rules import Rule
from tui_agent.tools.gate.workspace import shown

MAX_URL = 8_000
"""The most characters of a web address: about what servers accept."""

_PORTS = {"http": 80, "https": 443}
_NAME = regex(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?")
_UNSAFE = regex(r"[\x00-\x20\x7f\\]")
_USER = regex(r"//[^/?#]*@")
_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_WRITE = "Write it whole, as in https://example.org/page."
_LOCAL_NAMES = ("localhost", "localhost.localdomain")

Address = IPv4Address | IPv6Address


class WebAddress(msgspec.Struct, frozen=True):
    """A web address, normalised: one address has one form.

    `host` is in lower case and without brackets, `path` begins with a slash and includes the query. `user` is
    ``name:password``, percent-encoded; it is never shown.
    """

    scheme: str
    host: str
    port: int
    path: str
    user: str = ""

    @property
    def origin(self) -> str:
        """``https://example.org``, with the port if it is not the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    @property
    def text(self) -> str:
        """The address without a user or a password."""
        return f"{self.origin}{self.path}"

    @property
    def is_local(self) -> bool:
        """Whether the host, before any name is resolved, is known not to be on the public network."""
        number = literal(self.host)
        if number is not None:
            return not is_public(number)
        return self.host in _LOCAL_NAMES or self.host.endswith((".localhost", ".local", ".internal"))


def read_address(text: str) -> WebAddress:
    """Parse an address and drop its fragment. Raises ToolFailure if it is not an http or https address."""
    text = text.strip()
    named = shown(_USER.sub("//", text), 200)
    if len(text) > MAX_URL:
        raise ToolFailure(
            f"The address is too long: {len(text):,} characters, at most {MAX_URL:,}.", "Shorten its query."
        )
    if _UNSAFE.search(text):
        raise ToolFailure(
            f"{named} is no web address: it holds spaces, control characters or backslashes.",
            "Write them percent-encoded, as in %20.",
        )
    try:
        parts = urlsplit(text)
        port = parts.port
        host = _host(parts.hostname or "")
    except ValueError as error:
        raise ToolFailure(f"{named} is no web address: {error}.", _WRITE) from error
    scheme = parts.scheme.lower()
    if scheme not in _PORTS:
        hint = "" if "://" in text else f"Did you mean https://{named}?"
        raise ToolFailure(f"{named} is no web address: it must begin with http:// or https://.", hint or _WRITE)
    if not host:
        raise ToolFailure(f"{named} is no web address: it names no host.", _WRITE)
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._[]")
    query = f"?{quote(parts.query, safe='/%:@!$&()*+,;=~-._?[]')}" if parts.query else ""
    user, _, _ = parts.netloc.rpartition("@")
    return WebAddress(scheme, host, port or _PORTS[scheme], path + query, user)


def redirected(address: WebAddress, location: str) -> WebAddress:
    """The address of a redirect. User and password are kept for the same origin only. Raises ToolFailure."""
    try:
        target = read_address(urljoin(address.text, location.strip()))
    except ValueError as error:
        raise ToolFailure(
            f"The page redirects to {shown(location, 200)}, which is no address.", "Look for the same text elsewhere."
        ) from error
    user = address.user if target.origin == address.origin else ""
    return msgspec.structs.replace(target, user=user)


def same_site(one: WebAddress, other: WebAddress) -> bool:
    """Whether two addresses have the same host, ignoring ``www.`` and a change from http to https."""
    if one.host.removeprefix("www.") != other.host.removeprefix("www."):
        return False
    return one.port == other.port or (one.port, other.port) == (80, 443)


def literal(host: str) -> Address | None:
    """The network address that `host` spells, in any form a resolver accepts (``127.1``, ``0x7f000001``); None for a
    name.
    """
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        pass
    if not re.fullmatch(r"[0-9a-fx.]+", host) or not host[:1].isdigit():
        return None
    try:
        return IPv4Address(socket.inet_aton(host.rstrip(".")))
    except OSError:
        return None


def is_public(address: Address) -> bool:
    """Whether an address, and any address embedded in it, is on the public network."""
    if isinstance(address, IPv6Address):
        packed = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if address in _NAT64:
            packed = IPv4Address(int(address) & 0xFFFFFFFF)
        if packed is not None:
            return is_public(packed)
        if address in _LOCAL_NAT64 or address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def named_by(rules: Iterable[Rule], address: WebAddress) -> bool:
    """Whether one of the rules names the host of `address` in full, without ``*`` or ``?``."""
    for rule in rules:
        match = re.match(r"(https?)://([^/*?]+)(:\*)?(?:[/]|$)", rule.pattern)
        if not match:
            continue
        try:
            named = read_address(f"{match[1]}://{match[2]}/")
        except ToolFailure:
            continue
        same_port = bool(match[3]) or named.port == address.port
        if (named.scheme, named.host) == (address.scheme, address.host) and same_port:
            return True
    return False


async def resolve(address: WebAddress) -> tuple[Address, ...]:
    """The network addresses of a host, in the order to try them. Raises OSError or UnicodeError if it has none."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))


def _host(name: str) -> str:
    """A host, normalised; empty if it is not valid. Raises ValueError."""
    if ":" in name:
        address = IPv6Address(name)
        if address.scope_id:
            raise ValueError("an address with a zone leads to this machine's own network")
        return str(address)
    host = name.lower() if name.isascii() else name.encode("idna").decode().lower()
    if (number := literal(host)) is not None:
        return str(number)
    return host.removesuffix(".") if _NAME.fullmatch(host) and len(host) <= 253 else ""
