"""Which messages come through FLARE's network. Everything that we do not need is refused before it is read.

FLARE answers more than a federation should: its sites run shell commands and hand out files for whoever leaves out the
headers by which rights are checked, its server passes messages from site to site, tells anybody the other sites'
tokens, and unpacks messages within messages that nobody has checked. So every cell, as FLARE calls a process's end of
the network, gets a gate. A gate knows the name in the certificate at the other end of the connection, which nobody can
choose, and compares with it what the message says of itself.

    at the coordinator's server   a site speaks for itself, to the server and its job, about joining and working
    at a site                     the server may start and end its job and answer; whoever is on the same machine
                                  and has the site's own name is the site

Answers come through by the same rules of who speaks to whom. Nothing that is received makes a cell connect elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nvflare.fuel.f3.cellnet import cell
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    MessageHeaderKey,
    MessagePropKey,
    MessageType,
    ReturnCode,
)
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.comm_config import CommConfigurator
from nvflare.fuel.f3.drivers import socket_conn
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import STREAM_CHANNEL, STREAM_DATA_TOPIC, StreamHeaderKey

from fedvi.federation.transports.flare.names import ADMIN, CHANNEL, MESSAGE, RUNS, SERVER

LARGEST_FRAME = 128 << 20
"""Bytes that are taken from a connection at once; FLARE's own limit is two gigabytes. Far more than a release has: one
that is too large is to be refused with its site's name, not cut off."""

ANY = "*"
Kind = tuple[str, str]
"""Channel and topic of a request; of a stream, those that it says it is for."""

Gate = Callable[[str | None, str, str, Kind | None], bool]
"""Tells whether to let in a message: name in the certificate (None on the same machine), origin, destination, and of a
request its kind."""

SITE_TO_SERVER: set[Kind] = {
    *((CellChannel.SERVER_MAIN, topic) for topic in ("challenge", "register", "quit", "heart_beat")),
    (CellChannel.SERVER_MAIN, CellChannelTopic.REPORT_JOB_FAILURE),
    (CellChannel.CELLNET, CellChannelTopic.Bye),
}
SITE_TO_JOB: set[Kind] = {
    (CHANNEL, MESSAGE),
    (CellChannel.SERVER_COMMAND, "get_task"),
    (CellChannel.SERVER_COMMAND, "submit_update"),
    *((CellChannel.AUX_COMMUNICATION, f"__{topic}__") for topic in ("job_heartbeat", "sync_runner", "task_check")),
    (CellChannel.RETURN_ONLY, ANY),
    (STREAM_CHANNEL, ANY),
}
SERVER_TO_SITE: set[Kind] = {
    (CellChannel.CLIENT_MAIN, ANY),  # of which accepting.py leaves little
    (CHANNEL, RUNS),
    (CellChannel.CELLNET, CellChannelTopic.Bye),
}
SERVER_TO_SITES_JOB: set[Kind] = {
    (CellChannel.AUX_COMMUNICATION, "__end_run__"),
    (CellChannel.RETURN_ONLY, ANY),
    (STREAM_CHANNEL, ANY),
}


def at_server(peer: str | None, origin: str, destination: str, kind: Kind | None) -> bool:
    """Tell whether the coordinator's server lets a message in."""
    if peer is None:
        return _root(origin) == SERVER
    if peer == ADMIN:
        return destination == SERVER and _root(origin) != SERVER
    if _root(origin) != peer or _root(destination) != SERVER:
        return False
    return _among(kind, SITE_TO_SERVER if destination == SERVER else SITE_TO_JOB)


def at_servers_job(peer: str | None, origin: str, destination: str, kind: Kind | None) -> bool:
    """Tell whether the coordinator's half of a job lets a message in; all come by way of the server's gate."""
    return peer is None and destination != SERVER and (_root(origin) == SERVER or _among(kind, SITE_TO_JOB))


def at_site(coordinator: str) -> Gate:
    """Return the gate of a site's processes. coordinator: the name in its server's certificate."""

    def gate(peer: str | None, origin: str, destination: str, kind: Kind | None) -> bool:
        of_server = SERVER_TO_SITE if destination == _root(destination) else SERVER_TO_SITES_JOB
        if _root(origin) == SERVER:  # straight from the server, or handed on by the site's own long-lived process
            return peer in (None, coordinator) and _among(kind, of_server)
        if peer is not None:
            return False
        return _root(origin) == _root(destination) or (_root(destination) == SERVER and _among(kind, SITE_TO_JOB))

    return gate


def close(gate: Gate) -> None:
    """Put the gate before every cell that this process makes from now on."""
    original = getattr(cell.CoreCell, "ungated", cell.CoreCell)

    class Gated(original):  # type: ignore[misc, valid-type]
        ungated = original

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.set_message_interceptor(self.intercept)

        def _process_received_msg(self, endpoint: Any, connection: Any, message: Message) -> None:
            is_request = message.get_header(MessageHeaderKey.MSG_TYPE) == MessageType.REQ
            elsewhere = message.get_header(MessageHeaderKey.CONN_URL) is not None
            if elsewhere or not (is_request or admits(gate, peer_of(connection), message, None)):
                self.logger.warning(f"Dropped {described(message)}, by a connection of {peer_of(connection)}.")
            else:
                super()._process_received_msg(endpoint, connection, message)

        def _add_adhoc_connector(self, *_: Any) -> None:
            """Connect to nobody: an address that came with a message is anybody's."""

        def intercept(self, request: Message) -> Message | None:
            """Return a refusal, or None to let the request in."""
            peer = request.get_prop(MessagePropKey.COMMON_NAME)
            if admits(gate, peer, request, kind_of(request)):
                return None
            self.logger.warning(f"Refused: {described(request)}, by a connection of {peer}.")
            return make_reply(ReturnCode.UNAUTHENTICATED, error="This is not for you.")

    cell.CoreCell = Gated
    socket_conn.MAX_FRAME_SIZE = LARGEST_FRAME
    CommConfigurator._configuration, CommConfigurator._config_loaded = None, True  # it would look for it in jobs


def admits(gate: Gate, peer: str | None, message: Message, kind: Kind | None) -> bool:
    """Tell whether a gate lets a message in."""
    origin, destination = (message.get_header(key) for key in (MessageHeaderKey.ORIGIN, MessageHeaderKey.DESTINATION))
    return isinstance(origin, str) and isinstance(destination, str) and gate(peer, origin, destination, kind)


def peer_of(connection: Any) -> str | None:
    """Return the name in the certificate at the other end of a connection."""
    name = connection.get_conn_properties().get(DriverParams.PEER_CN.value)
    return str(name) if name else None


def described(message: Message) -> str:
    """Return who wants what, in a few words: they are the sender's."""
    origin, kind = str(message.get_header(MessageHeaderKey.ORIGIN))[:60], str(kind_of(message))[:80]
    return f"{origin!r} asked for {kind}"


def kind_of(request: Message) -> Kind:
    """Return channel and topic of a request; of the data of a stream, those that it is handed on to."""
    kind = _pair(request, MessageHeaderKey.CHANNEL, MessageHeaderKey.TOPIC)
    if kind == (STREAM_CHANNEL, STREAM_DATA_TOPIC):
        return _pair(request, StreamHeaderKey.CHANNEL, StreamHeaderKey.TOPIC)
    return kind


def _pair(request: Message, channel: str, topic: str) -> Kind:
    return str(request.get_header(channel, "")), str(request.get_header(topic, ""))


def _among(kind: Kind | None, kinds: set[Kind]) -> bool:
    return kind is None or kind in kinds or (kind[0], ANY) in kinds


def _root(name: str) -> str:
    """Return whose process a cell is: `north` for `north` and `north.JOB`."""
    return name.partition(".")[0]
