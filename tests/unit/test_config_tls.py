"""The keys of ``[broker]`` for TLS: what they become, and every mistake with its remedy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from yarl import URL

from dev.certificates import Authority
from harness.configs import changed, complaint, read


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``authority.pem``, ``robot.pem``, ``robot.key``, and what is not fit."""
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory)
    robot = authority.issue("robot")
    authority.issue("other")
    (directory / "both.pem").write_text(robot.cert.read_text() + robot.key.read_text())
    (directory / "letter.pem").write_text("Dear Sir or Madam,\n")
    encrypt = ["openssl", "pkey", "-in", str(robot.key), "-aes256", "-passout", "pass:secret"]
    subprocess.run([*encrypt, "-out", str(directory / "locked.key")], check=True, capture_output=True)
    return directory


def secure(lines: str, files: Path, scheme: str = "amqps") -> str:
    """The good configuration by TLS with these lines; a file's name in them is one of ``files``."""
    there = "\n".join(
        line if line.startswith("auth") else line.replace("= '", f"= '{files}/") for line in lines.split("; ")
    )
    return changed(
        'url = "amqp://guest:s3cret@rabbit:5672/vhost"', f'url = "{scheme}://rabbit:5671/vhost"\n{there}'
    )


ALL = "ca_file = 'authority.pem'; cert_file = 'robot.pem'; key_file = 'robot.key'; auth = 'external'"


def test_the_keys_go_where_the_client_library_reads_them(tmp_path: Path, files: Path) -> None:
    broker = read(tmp_path, secure(ALL, files)).broker
    [address] = broker.addresses()
    assert dict(URL(address).query) == {
        "cafile": f"{files}/authority.pem",
        "certfile": f"{files}/robot.pem",
        "keyfile": f"{files}/robot.key",
        "auth": "external",
    }
    assert broker.shown() == ("amqps://rabbit:5671/vhost",)


def test_what_stands_in_the_url_goes_first(tmp_path: Path, files: Path) -> None:
    text = secure("ca_file = 'authority.pem'", files).replace("/vhost", "/vhost?cafile=own.pem&timeout=5")
    [address] = read(tmp_path, text).broker.addresses()
    assert URL(address).query["cafile"] == "own.pem"


def test_without_the_keys_an_address_stays_as_it_was_written(tmp_path: Path) -> None:
    assert read(tmp_path).broker.addresses() == ("amqp://guest:s3cret@rabbit:5672/vhost",)


def test_a_certificate_may_have_its_key_in_the_same_file(tmp_path: Path, files: Path) -> None:
    assert read(tmp_path, secure("cert_file = 'both.pem'", files)).broker.key_file is None


def test_a_bare_name_is_a_systemd_credential(tmp_path: Path, files: Path) -> None:
    text = secure("ca_file = 'x'", files).replace(f"{files}/x", "authority.pem")
    broker = read(tmp_path, text, {"CREDENTIALS_DIRECTORY": str(files)}).broker
    assert broker.ca_file == files / "authority.pem"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("ca_file = 'gone.pem'", 'ca_file = "{files}/gone.pem": cannot be read: No such file'),
        ("ca_file = 'letter.pem'", "must be a file of certificates in PEM"),
        ("cert_file = 'letter.pem'", 'cert_file = "{files}/letter.pem": must be a certificate in PEM'),
        ("cert_file = 'robot.pem'", "must be a certificate in PEM, and key_file its key"),
        ("cert_file = 'robot.pem'; key_file = 'gone.key'", 'key_file = "{files}/gone.key": cannot be read'),
        ("cert_file = 'robot.pem'; key_file = 'other.key'", "is not the key of the certificate"),
        ("cert_file = 'robot.pem'; key_file = 'locked.key'", "is encrypted, and there is nobody to ask"),
        ("key_file = 'robot.key'", "belongs to a certificate: set cert_file too"),
        ("auth = 'external'", 'auth = "external": logs in by certificate: set cert_file'),
        ("auth = 'token'", "auth = \"token\": must be 'plain' or 'external'"),
    ],
)
def test_each_mistake_is_named_with_key_and_remedy(
    tmp_path: Path, files: Path, lines: str, said: str
) -> None:
    assert f"{said}".replace("{files}", str(files)) in complaint(tmp_path, secure(lines, files))


def test_certificates_go_with_tls_alone(tmp_path: Path, files: Path) -> None:
    said = complaint(tmp_path, secure(ALL, files, scheme="amqp"))
    assert said.count("begin every URL with amqps://") == 4
