"""The hosts on which examples/clusters tries engines out."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, Network, missing_tools

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools()), reason=f"cannot make hosts: {missing_tools()}"),
]

CONNECT = "import socket; socket.create_connection(('two', 80), timeout=2)"
TIME_LIMIT_S = 240.0
LISTEN = (
    "import socket\n"
    "listener = socket.create_server(('', 80))\n"
    "print('listening', flush=True)\n"
    "while True: listener.accept()\n"
)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with Network(tmp_path / "logs") as network:
        yield network


def listen(host: Host) -> None:
    process = host.start(sys.executable, "-c", LISTEN)
    while not process.printed():
        assert not process.has_ended()
        threading.Event().wait(0.02)


def connects(host: Host) -> bool:
    return host.run(sys.executable, "-c", CONNECT).returncode == 0


def test_hosts_share_nothing_but_a_network_and_what_they_are_given(
    network: Network, tmp_path: Path
):
    shared = tmp_path / "shared"
    shared.mkdir()
    one = network.add_host("one", {"COLOUR": "red"}, shared)
    two = network.add_host("two", shared=shared)
    assert one.run("sh", "-c", "hostname; echo $COLOUR").stdout == "one\nred\n"
    one.run("sh", "-c", "echo mine > /tmp/mine; echo ours > /tmp/shared/ours")
    assert two.run("ls", "/tmp/mine").returncode != 0
    assert two.run("cat", "/tmp/shared/ours").stdout == (shared / "ours").read_text() == "ours\n"
    assert one.run("touch", "/usr/file").returncode != 0
    listen(two)
    assert connects(one)
    assert one.run(sys.executable, "-c", CONNECT.replace("two", "localhost")).returncode != 0


def test_a_host_that_is_cut_off_or_killed_is_gone_and_can_be_replaced(network: Network):
    one = network.add_host("one")
    two = network.add_host("two")
    listen(two)
    two.cut_off()
    assert not connects(one)
    two.kill()
    assert all(process.has_ended() for process in two.processes)
    listen(network.add_host("two"))
    # The address of a host that was away is asked for again, which takes some seconds.
    give_up = time.monotonic() + TIME_LIMIT_S
    while not connects(one):
        assert time.monotonic() < give_up
