"""What only a newer systemd than Debian 12's can be asked."""

from __future__ import annotations

import re
from typing import Final

from booted.conftest import SERVICE, TREE, Host

EXAMPLE: Final = TREE / "systemd/acklast.service.d/example.conf"


def reload_lines() -> str:
    """What the drop-in's example has for these, which it leaves off."""
    found = re.findall(r"^#((?:Type|ExecReload)=.*)$", EXAMPLE.read_text(), re.MULTILINE)
    return "\n".join(found)


async def test_a_reload_waits_until_the_file_is_read(newer_host: Host) -> None:
    host = newer_host
    host.drop_in(reload_lines())
    assert host.shown()["Type"] == "notify-reload"
    host.start()
    main, config = host.shown()["MainPID"], host.etc / "acklast.toml"
    good = config.read_text()
    for bad in range(3):
        config.write_text(good.replace("concurrency = 2", f"concurrency = -{bad}"))
        host.machine.must("systemctl", "reload", "acklast")
        # At once: `reload` has waited for it.
        told = f"configuration not reloaded: acklast.toml: lanes.work.concurrency = {-bad}"
        assert told in host.shown()["StatusText"]
        config.write_text(good.replace("concurrency = 2", f"concurrency = {3 + bad}"))
        host.machine.must("systemctl", "reload", "acklast")
        assert host.shown()["StatusText"] == "consuming 1 lanes"
    assert host.is_(ActiveState="active", SubState="running", MainPID=main, NRestarts="0")
    await host.publish("after")
    await host.done("after")


async def test_a_newer_systemd_has_nothing_against_the_units(newer_host: Host) -> None:
    units = [f"/etc/systemd/system/{path.name}" for path in (TREE / "systemd").glob("*.service")]
    example = EXAMPLE.read_text()
    (newer_host.machine.root / f"etc/systemd/system/{SERVICE}.d").mkdir()
    (newer_host.machine.root / f"etc/systemd/system/{SERVICE}.d/example.conf").write_text(example)
    named = [unit.replace("@", "@mail") for unit in units]
    done = newer_host.machine.run("systemd-analyze", "verify", "--man=no", *named)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
