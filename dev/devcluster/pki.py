"""Certificates of one cluster: an authority of its own, made fresh at every start, gone with the cluster."""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=365)
_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class KeyPair:
    """PEM files of a certificate and its key."""

    certificate: Path
    key: Path


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def write_private(path: Path, content: bytes) -> Path:
    """Write a file that only its owner may read, from its first byte on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    return path


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Authority:
    """A certificate authority that writes what it issues below one directory."""

    def __init__(self, directory: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._directory = directory
        self._key = key
        self._certificate = certificate
        self.certificate_path = directory / "ca.crt"
        self.key_path = directory / "ca.key"

    @classmethod
    def create(cls, directory: Path, common_name: str = "devcluster") -> Self:
        """Make the authority and write ca.crt and ca.key."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        authority = cls(directory, key, certificate)
        authority.certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        write_private(authority.key_path, _key_pem(key))
        return authority

    def issue(
        self,
        file_name: str,
        common_name: str,
        *,
        organizations: Sequence[str] = (),
        alternative_names: Sequence[str] = (),
    ) -> KeyPair:
        """Certificate for a client, and with alternative names for a server too.

        Kubernetes reads the user from the common name and the groups from the organizations.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, item) for item in organizations]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if alternative_names:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(attributes))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if alternative_names:
            names = x509.SubjectAlternativeName([_alternative_name(item) for item in alternative_names])
            builder = builder.add_extension(names, critical=False)
        pair = KeyPair(self._directory / f"{file_name}.crt", self._directory / f"{file_name}.key")
        pair.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        write_private(pair.key, _key_pem(key))
        return pair


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def service_account_keys(directory: Path) -> tuple[Path, Path]:
    """Private and public key with which ServiceAccount tokens are signed and checked."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = write_private(directory / "service-accounts.key", _key_pem(key))
    public = directory / "service-accounts.pub"
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public
