"""What the benchmark reads from /proc."""

from __future__ import annotations

import os
import socket

from bench.machine import cpu_model, memory_gb
from bench.processes import Stat, cpu_s, descendants, listeners, parse_stat, peak_memory_bytes

_TAIL = "S 10 7 7 0 -1 4194304 1 2 3 4 100 20 3 1 20 0 1 0 5 6 7"


def test_a_stat_is_read_with_the_time_of_ended_children() -> None:
    assert parse_stat(f"7 (beam.smp) {_TAIL}") == Stat(pid=7, parent=10, ticks=124)


def test_a_command_may_be_called_anything() -> None:
    assert parse_stat(f"7 (a ) S 1 (b) {_TAIL}") == Stat(pid=7, parent=10, ticks=124)


def test_a_tree_is_a_root_and_all_below_it() -> None:
    stats = [Stat(1, 0, 0), Stat(2, 1, 0), Stat(3, 2, 0), Stat(4, 3, 0), Stat(9, 1, 0)]
    assert descendants(stats, [2]) == {2, 3, 4}


def test_a_root_that_has_ended_has_no_tree() -> None:
    assert descendants([Stat(2, 1, 0)], [1]) == set()


def test_our_own_costs_are_seen() -> None:
    assert cpu_s({"us": [os.getpid()]})["us"] > 0
    assert peak_memory_bytes([os.getpid()]) > 1_000_000


def test_a_server_is_found_by_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert os.getpid() in listeners(server.getsockname()[1])


def test_the_machine_is_named() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: AMD EPYC\n") == "AMD EPYC"
    assert memory_gb("MemTotal:       24684372 kB\nMemFree: 1 kB\n") == 23.5
