"""The certificates that encrypted connections are checked with, read once per process."""

import os
import ssl
from functools import cache


def tls() -> ssl.SSLContext:
    """What every HTTP client of this process checks servers with: certifi's authorities, or those that
    ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` name. The first call takes some 20 ms: not for the event loop.
    """
    return _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _context(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()
