"""One GET request, with limits on where it may connect and be redirected, and on how much it may return."""

import asyncio
import base64
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from tui_agent.system.network import tls
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.web.addresses import WebAddress, is_public, literal, redirected, resolve, same_site
from tui_agent.version import __version__

if TYPE_CHECKING:
    import httpx2

AnError = TypeVar("AnError", bound=Exception)

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_TRIED = 4
_ELSEWHERE = "Look for the same text elsewhere."
_CODINGS = frozenset(("", "identity", "gzip", "x-gzip", "deflate"))
_HEADERS = {
    "User-Agent": f"tui-agent/{__version__}",
    "Accept": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
    "Accept-Language": "en, *;q=0.5",
}


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The most `bytes` of a decompressed body, `seconds` for the whole fetch, and `redirects` to follow.

    `silence` is the most seconds to wait for a connection, and between two pieces of the response.
    """

    bytes: int = 5_000_000
    seconds: float = 60.0
    silence: float = 20.0
    redirects: int = 10


class Response(msgspec.Struct, frozen=True):
    """The last response. The names of the `headers` are in lower case; the body of an error may be cut."""

    address: WebAddress
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    redirects: int


class FetchPolicy(msgspec.Struct, frozen=True):
    """Where a fetch may go.

    `private` tells whether a host that is not on the public network may be reached, `onward` whether a redirect to
    another site may be followed.
    """

    private: Callable[[WebAddress], bool]
    onward: Callable[[WebAddress], bool]


async def get(address: WebAddress, policy: FetchPolicy, limits: FetchLimits) -> Response:
    """Fetch `address`, following redirects. Raises ToolFailure that says what went wrong."""
    check_private(address, policy)
    await asyncio.to_thread(tls)
    try:
        async with asyncio.timeout(limits.seconds):
            for followed in range(limits.redirects + 1):
                response = await _Exchange(address, policy, limits).run(followed)
                location = response.headers.get("location", "")
                if response.status not in _REDIRECTS or not location:
                    return response
                address = _onward(address, location, policy)
    except TimeoutError:
        raise ToolFailure(
            f"{shown(address.text, 300)} did not arrive within {limits.seconds:g} seconds.",
            "Try again later, or look for the same text elsewhere.",
        ) from None
    raise ToolFailure(
        f"The page redirects again and again: {limits.redirects} redirects were followed, the last one to "
        f"{shown(address.text, 300)}.",
        "It may want a login; look for the same text elsewhere.",
    )


def check_private(address: WebAddress, policy: FetchPolicy) -> None:
    """Raises ToolFailure for a host that by its name is not on the public network, unless the policy allows it."""
    if address.is_local and not policy.private(address):
        raise _private(address, "")


def _private(address: WebAddress, found: str) -> ToolFailure:
    where = f"{shown(address.origin)}{f' leads to {found}, which' if found else ''}"
    return ToolFailure(
        f"{where} is not on the public network, and no rule of the user allows it.",
        f"They can allow it with the rule fetch_url({address.origin}/*) in permissions.allow; go on without it, or ask "
        "them.",
    )


def _onward(address: WebAddress, location: str, policy: FetchPolicy) -> WebAddress:
    target = redirected(address, location)
    check_private(target, policy)
    if address.scheme == "https" and target.scheme == "http":
        raise ToolFailure(
            f"{shown(address.text, 300)} redirects to an address without encryption, {shown(target.text, 300)}; that "
            "was not followed.",
            "Call fetch_url with it if that is meant.",
        )
    if not same_site(address, target) and not policy.onward(target):
        raise ToolFailure(
            f"{shown(address.text, 300)} redirects to another site, which was not asked for: "
            f"{shown(target.text, 1_000)}.",
            "Call fetch_url with that address to go on.",
        )
    return target


class _Exchange:
    """One request and its response, on a connection of its own."""

    def __init__(self, address: WebAddress, policy: FetchPolicy, limits: FetchLimits) -> None:
        self._address = address
        self._policy = policy
        self._limits = limits

    async def run(self, followed: int) -> Response:
        import httpx2

        proxy = _proxy(self._address)
        silence = self._limits.silence
        try:
            client = httpx2.AsyncClient(
                verify=tls(), trust_env=False, proxy=proxy or None, timeout=silence, headers=_HEADERS
            )
        except (ImportError, ValueError) as error:
            raise ToolFailure(
                f"The proxy that the environment names cannot be used: {error}.", "Tell the user."
            ) from error
        async with client:
            try:
                response = await self._connected(client, bool(proxy))
                try:
                    body = await self._body(response)
                finally:
                    await response.aclose()
            except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
                raise ToolFailure(*self._said(error, proxy)) from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Response(self._address, response.status_code, response.reason_phrase, headers, body, followed)

    async def _connected(self, client: "httpx2.AsyncClient", proxied: bool) -> "httpx2.Response":
        """Send the request to the first of the host's network addresses that accepts the connection."""
        import httpx2

        *others, last = await self._hosts(proxied)
        for host in others:
            with suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return await client.send(self._request(client, host), stream=True)
        return await client.send(self._request(client, last), stream=True)

    def _request(self, client: "httpx2.AsyncClient", host: str) -> "httpx2.Request":
        address = self._address
        bracketed = f"[{host}]" if ":" in host else host
        headers = {"Host": address.origin.partition("//")[2]}
        if address.user:
            headers["Authorization"] = f"Basic {base64.b64encode(unquote_to_bytes(address.user)).decode()}"
        # Connect to the address that was checked, but use the name for the Host header and the certificate.
        named = {} if literal(address.host) else {"sni_hostname": address.host.rstrip(".")}
        return client.build_request(
            "GET", f"{address.scheme}://{bracketed}:{address.port}{address.path}", headers=headers, extensions=named
        )

    async def _hosts(self, proxied: bool) -> tuple[str, ...]:
        """The hosts to connect to. A proxy resolves names itself; then only what resolves here can be checked."""
        try:
            found = await resolve(self._address)
        except (OSError, UnicodeError) as error:
            if proxied:
                return (self._address.host,)
            reason = getattr(error, "strerror", None) or "it is no name a resolver takes"
            raise ToolFailure(
                f"The host {shown(self._address.host)} was not found ({reason}).",
                "Check the spelling; without a network connection nothing can be fetched.",
            ) from error
        allowed = found if self._policy.private(self._address) else tuple(filter(is_public, found))
        if not allowed:
            raise _private(self._address, ", ".join(map(str, found[:3])))
        return (self._address.host,) if proxied else tuple(map(str, allowed[:_TRIED]))

    async def _body(self, response: "httpx2.Response") -> bytes:
        if response.status_code in _REDIRECTS and "location" in response.headers:
            return b""
        coding = response.headers.get("content-encoding", "").strip().lower()
        if coding not in _CODINGS:
            raise ToolFailure(
                f"The server sent it packed as {shown(coding, 100)}, which was not asked for.",
                "A command such as curl --compressed may unpack it.",
            )
        length = response.headers.get("content-length", "")
        failed = response.status_code >= 400
        if length.isdigit() and int(length) > self._limits.bytes and not failed:
            raise self._too_large(int(length))
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > self._limits.bytes:
                if failed:
                    break
                raise self._too_large(None)
        return bytes(body)

    def _too_large(self, size: int | None) -> ToolFailure:
        exact = f" ({size:,} bytes)" if size else ""
        return ToolFailure(
            f"{shown(self._address.text, 300)} is too large{exact}: at most {self._limits.bytes:,} bytes are fetched.",
            "A command such as curl can save it to a file, which read_file and grep can look at.",
        )

    def _said(self, error: Exception, proxy: str) -> tuple[str, str]:
        """Why the request failed, without naming the network address, and what may be done."""
        import httpx2

        name = shown(self._address.origin)
        certificate = _cause(error, ssl.SSLCertVerificationError)
        if certificate is not None:
            why = f"The certificate of {name} is not valid: {shown(certificate.verify_message, 200)}."
            return why, "Nothing was fetched: the site may not be what it says it is. Tell the user."
        refused = _cause(error, ssl.SSLError)
        if refused is not None:
            reason = shown(refused.reason or str(refused), 200)
            return f"No encrypted connection to {name} could be made: {reason}.", _ELSEWHERE
        if isinstance(error, httpx2.ProxyError):
            why = f"The proxy that the environment names refused the connection to {name}: {shown(str(error), 200)}."
            return why, "Tell the user: the proxy decides what may be reached."
        if isinstance(error, httpx2.TimeoutException):
            return f"{name} did not answer within {self._limits.silence:g} seconds.", "Try again later."
        if isinstance(error, httpx2.ConnectError):
            through = " through the proxy" if proxy else ""
            why = f"No connection to {name} could be made{through}: nothing answers there, or a firewall is between."
            return why, "Check the address and its port, or look for the same text elsewhere."
        if isinstance(error, httpx2.DecodingError):
            return f"What {name} sent is damaged: it cannot be unpacked.", _ELSEWHERE
        why = f"{name} broke the connection off, or did not speak HTTP: {shown(str(error) or 'no reason given', 200)}."
        return why, "Try again, or look for the same text elsewhere."


def _cause(error: BaseException | None, kind: type[AnError]) -> AnError | None:
    """The first error of this type among an error and its causes."""
    while error is not None:
        if isinstance(error, kind):
            return error
        error = error.__cause__ or error.__context__
    return None


def _proxy(address: WebAddress) -> str:
    """The proxy that the environment sets for an address; may be empty."""
    from urllib.request import getproxies, proxy_bypass

    if proxy_bypass(f"{address.host}:{address.port}") or proxy_bypass(address.host):
        return ""
    proxies = getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all") or ""
    return proxy if "://" in proxy or not proxy else f"http://{proxy}"
