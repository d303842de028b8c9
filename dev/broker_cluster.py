"""Three private RabbitMQ nodes in one cluster, of which one can be cut off from the others."""

from __future__ import annotations

from functools import partial
from typing import Final

from dev.management import Management
from dev.rabbitmq import Membership, Node, PortMapper, Programs
from dev.workspace import Workspace

_NAMES: Final = ("red", "green", "blue")
_SETTINGS: Final = "cluster_formation.peer_discovery_backend = classic_config\n" + "".join(
    f"cluster_formation.classic_config.nodes.{number} = {name}@localhost\n"
    for number, name in enumerate(_NAMES, 1)
)
_PARTITIONS: Final = "cluster_partition_handling = pause_minority\n"
# Nodes that see nothing of each other for so many seconds count as parted. A minute is usual. And what a wait
# queue could not pass on to a queue that lost its leader is tried again after ten seconds, not three minutes.
_ERLANG: Final = "-kernel net_ticktime 8 -rabbit dead_letter_worker_publisher_confirm_timeout 10000"


class BrokerCluster:
    """``start`` makes it ready: every node knows the two others."""

    def __init__(self, workspace: Workspace, programs: Programs | None = None) -> None:
        programs = programs or Programs.pick()
        member = Membership(PortMapper(workspace, programs), _SETTINGS + _PARTITIONS, _ERLANG)
        self.nodes = [Node(workspace, name, programs=programs, member=member) for name in _NAMES]

    @property
    def management(self) -> Management:
        """The API of the first node, which shows the whole cluster."""
        return self.nodes[0].management

    def start(self) -> None:
        """Start all nodes at once, and wait until they are one cluster.

        Raises:
            StackError: a node did not become ready; with the end of its log.
        """
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.await_ready()
        for node in self.nodes:
            node.await_(partial(self._is_whole, node), "its cluster is whole")

    def _is_whole(self, node: Node) -> bool:
        running = [one for one in node.management.call("GET", "nodes") if one.get("running")]
        return len(running) == len(self.nodes)

    def urls(self, vhost: str = "/", first: Node | None = None) -> list[str]:
        """Every node's address, that of ``first`` before the others."""
        ordered = sorted(self.nodes, key=lambda node: node is not first)
        return [node.url(vhost) for node in ordered]

    def leader_of(self, vhost: str, queue: str, ask: Node | None = None) -> Node:
        """The node that leads a quorum queue, by the word of ``ask``, which must be alive.

        Raises:
            StackError: it cannot say.
        """
        said = (ask or self.nodes[0]).ctl(
            "eval",
            f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>)), '
            "{_, N} = amqqueue:get_pid(Q), N.",
        )
        [leader] = [node for node in self.nodes if node.name in said]
        return leader

    def part(self, node: Node) -> None:
        """Cut a node off from the others, and not from its clients: no link between them is made any more.

        Each connects with a cookie that the other does not take. Nothing of the machine's network is touched.
        """
        self._with_each_other(node, "erlang:set_cookie(N, apart), erlang:disconnect_node(N)")

    def join(self, node: Node) -> None:
        """Let a node that was cut off come back."""
        self._with_each_other(node, "erlang:set_cookie(N, erlang:get_cookie()), net_kernel:connect_node(N)")

    def _with_each_other(self, node: Node, do: str) -> None:
        others = ",".join(f"'{other.name}'" for other in self.nodes if other is not node)
        node.ctl("eval", f"[begin {do} end || N <- [{others}]].")
