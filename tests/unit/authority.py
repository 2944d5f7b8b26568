"""A certificate authority of the tests' own, with one certificate for this machine."""

import dataclasses
import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HOSTS = ("localhost", "registry.test", "evil.example")  #: the latter two through a proxy of the tests
BEFORE, AFTER = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


@dataclasses.dataclass(frozen=True)
class Authority:
    """Files in PEM: `bundle` is what clients trust; `certificate` and `key` are a server's at `HOSTS`."""

    bundle: Path
    certificate: Path
    key: Path


def make_authority(folder):
    """A new authority, its files in this folder."""
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test authority")])
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    hosts = [x509.DNSName(host) for host in HOSTS]
    names = x509.SubjectAlternativeName([*hosts, x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key())
    root = (
        _begun(root_name, root_name, root_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(root_key.public_key()), critical=False)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    leaf = (
        _begun(name, root_name, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    made = Authority(folder / "authority.pem", folder / "server.pem", folder / "server.key")
    made.bundle.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    made.certificate.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    made.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return made


def _begun(subject, issuer, key):
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
    return builder.serial_number(x509.random_serial_number()).not_valid_before(BEFORE).not_valid_after(AFTER)


def _usage(*, signs_certificates):
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
