"""What the configuration's files say now is what the next connection is made with."""

from __future__ import annotations

from pathlib import Path

from acklast.config import load
from acklast.config.rotation import Servers
from harness.configs import GOOD, HOME

SECRET = 'url_file = "broker"'


def servers(tmp_path: Path) -> Servers:
    (tmp_path / "broker").write_text("amqp://acklast:old@rabbit/")
    file = tmp_path / "acklast.toml"
    file.write_text(GOOD.replace('url = "amqp://guest:s3cret@rabbit:5672/vhost"', SECRET))
    return Servers(load(file, HOME), HOME)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    told = servers(tmp_path)
    assert told.brokers() == ("amqp://acklast:old@rabbit/",)
    (tmp_path / "broker").write_text("amqp://acklast:new@rabbit/\n")
    assert told.brokers() == ("amqp://acklast:new@rabbit/",)
    assert told.ledger() == "postgresql://acklast:s3cret@db:5432/ledger"


def test_the_last_good_values_hold_while_a_file_is_not_good(tmp_path: Path) -> None:
    told = servers(tmp_path)
    for content in ("", "half of a u"):
        (tmp_path / "broker").write_text(content)
        assert told.brokers() == ("amqp://acklast:old@rabbit/",)
    (tmp_path / "broker").unlink()
    assert told.brokers() == ("amqp://acklast:old@rabbit/",)
    (tmp_path / "broker").write_text("amqp://acklast:new@rabbit/")
    assert told.brokers() == ("amqp://acklast:new@rabbit/",)
