"""The identity of a daemon: one holder of a state directory, known by an id that a restart keeps."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from acklast.errors import ConfigError, Exit, InstanceLocked
from acklast.instance import Instance

HOLD = """
import sys, pathlib
from acklast.instance import Instance
with Instance(pathlib.Path(sys.argv[1]), "one") as instance:
    print(instance.id, flush=True)
    sys.stdin.read()
"""


def test_a_restart_keeps_the_id(tmp_path: Path) -> None:
    with Instance(tmp_path, "one") as first:
        kept = first.id
    with Instance(tmp_path, "one") as second:
        assert second.id == kept
    assert kept.startswith("one:")


def test_the_same_name_elsewhere_is_another_instance(tmp_path: Path) -> None:
    with Instance(tmp_path / "a", "one") as here, Instance(tmp_path / "b", "one") as there:
        assert here.id != there.id


def test_two_names_share_a_directory(tmp_path: Path) -> None:
    with Instance(tmp_path, "one") as one, Instance(tmp_path, "two") as two:
        assert one.id != two.id


def test_a_second_holder_is_refused_and_told_what_to_do(tmp_path: Path) -> None:
    with Instance(tmp_path, "one"):
        with pytest.raises(InstanceLocked) as caught, Instance(tmp_path, "one"):
            pass
        assert caught.value.exit is Exit.CONFIG
        assert "--instance" in caught.value.remedy
        assert str(tmp_path) in caught.value.what


def test_the_kernel_frees_the_lock_of_a_process_that_was_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        its_id = other.stdout.readline().strip()
        with pytest.raises(InstanceLocked), Instance(tmp_path, "one"):
            pass
        other.send_signal(signal.SIGKILL)
        other.wait(timeout=10)
        with Instance(tmp_path, "one") as successor:
            assert successor.id == its_id, "so its predecessor's sessions are ended at once"


def test_the_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with Instance(tmp_path / "deep" / "state", "one"):
        assert stat.S_IMODE((tmp_path / "deep" / "state").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "deep" / "state" / "one.lock").stat().st_mode) == 0o600


def test_a_lock_file_that_was_cut_short_gets_a_new_id(tmp_path: Path) -> None:
    (tmp_path / "one.lock").write_text("\n")
    with Instance(tmp_path, "one") as instance:
        made = instance.id
    with Instance(tmp_path, "one") as again:
        assert again.id == made


def test_a_directory_that_cannot_be_used_is_named_with_the_setting_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught, Instance(tmp_path / "file", "one"):
        pass
    assert "state_dir" in caught.value.what
    assert "state_dir" in caught.value.remedy


def test_no_child_inherits_the_lock(tmp_path: Path) -> None:
    with Instance(tmp_path, "one") as instance:
        assert not os.get_inheritable(instance._file)
