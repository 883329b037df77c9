"""Certificates for servers of tests, as platforms give them to pods: for the name of a Service, self-signed."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def self_signed(host: str) -> tuple[str, str]:
    """A certificate and its private key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(
        now + datetime.timedelta(days=1)
    )
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    signed = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    form = serialization.PrivateFormat.PKCS8
    private = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return signed.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


def server_context(folder: Path) -> ssl.SSLContext:
    """TLS of a server with such a certificate, which is written into `folder`."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    for path, text in zip((certificate, key), self_signed("engine.models.svc"), strict=True):
        path.write_text(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
