"""TLS for the exporter: a server certificate and, where asked for, mandatory client certificates."""

from __future__ import annotations

import ssl

from gputop.model.source import UsageError


def context(certificate: str | None, key: str | None, client_ca: str | None) -> ssl.SSLContext | None:
    """The context, None where nothing was asked for. Raises UsageError for files that do not fit or cannot be read."""
    if certificate is None:
        if key is not None or client_ca is not None:
            raise UsageError("TLS needs a certificate: name it with --tls-cert")
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2

    def no_password() -> str:
        # OpenSSL would ask for it on the terminal, and a service would wait for ever.
        raise UsageError(f"the key in {key or certificate} has a passphrase: give one without")

    try:
        made.load_cert_chain(certificate, key, no_password)
    except (OSError, ValueError) as error:
        raise UsageError(f"--tls-cert {certificate}: {_why(error)}") from None
    if client_ca is not None:
        try:
            made.load_verify_locations(client_ca)
        except (OSError, ValueError) as error:
            raise UsageError(f"--client-ca {client_ca}: {_why(error)}") from None
        made.verify_mode = ssl.CERT_REQUIRED
    return made


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        # Not every failure of OpenSSL has a reason: a file without any PEM block has none.
        words = (error.reason or "no PEM block of that kind").lower().replace("_", " ")
        return f"no certificate and key that fit together ({words})"
    return getattr(error, "strerror", None) or "not a PEM file"
