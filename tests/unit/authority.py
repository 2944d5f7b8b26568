"""A certificate of the tests' own for this machine, which is its own authority."""

import dataclasses
import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HOSTS = ("localhost", "registry.test", "evil.example")  #: the latter two through a proxy of the tests
BEFORE, AFTER = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)
USAGE = ("digital_signature", "key_cert_sign", "crl_sign")
OTHER = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")


@dataclasses.dataclass(frozen=True)
class Authority:
    """Files in PEM: `bundle` is what clients trust; `certificate` and `key` are a server's at `HOSTS`."""

    bundle: Path
    certificate: Path
    key: Path


def make_authority(folder):
    """A new authority, its files in this folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    hosts = [*map(x509.DNSName, HOSTS), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    usage = {**dict.fromkeys(USAGE, True), **dict.fromkeys((*OTHER, "decipher_only"), False)}
    builder = x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key())
    certificate = (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(BEFORE)
        .not_valid_after(AFTER)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(key, hashes.SHA256())
    )
    made = Authority(folder / "server.pem", folder / "server.pem", folder / "server.key")
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    made.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return made
