"""A certificate for 127.0.0.1 and localhost, signed by an authority of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

SUBJECT = "subjectAltName=IP:127.0.0.1,DNS:localhost"
# Finding the primes of an RSA key takes a second of processor time.
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Certificate:
    def __init__(self, folder: Path) -> None:
        self.authority, self.chain, self.key = folder / "authority.crt", folder / "server.crt", folder / "server.key"
        authority_key, request, extensions = folder / "authority.key", folder / "server.csr", folder / "extensions"
        extensions.write_text(SUBJECT)
        _openssl(
            "req", "-x509", *NEW_KEY, "-days", "2", "-subj", "/CN=jobyard tests",
            "-keyout", authority_key, "-out", self.authority,
        )  # fmt: skip
        _openssl("req", *NEW_KEY, "-subj", "/CN=127.0.0.1", "-keyout", self.key, "-out", request)
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.authority, "-CAkey", authority_key, "-CAcreateserial",
            "-days", "2", "-extfile", extensions, "-out", self.chain,
        )  # fmt: skip


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {words[0]} failed: {done.stderr}")
