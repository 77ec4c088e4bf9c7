"""The TLS context for a cluster."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import NamedTuple

from jobyard.errors import ConfigurationError


class TlsMaterial(NamedTuple):
    """PEM texts; a client needs a new connection when one of them changes."""

    authority: bytes | None
    certificate: bytes | None
    key: bytes | None


def ssl_context(tls: TlsMaterial, verifies: bool) -> ssl.SSLContext:
    authority, certificate, key = tls
    try:
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        # Authorities of many clusters lack the key identifiers that Python 3.13 asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not verifies:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate and key:
            with tempfile.NamedTemporaryFile() as file:  # readable by this user only; ssl reads no bytes
                file.write(certificate.rstrip() + b"\n" + key)
                file.flush()
                context.load_cert_chain(Path(file.name))
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The certificates for the Kubernetes cluster are not valid: {error}") from error
    return context
