"""Which requests come through FLARE's network. Everything that we do not need is refused before it is read.

FLARE answers more than a federation should: its sites run shell commands and hand out files for whoever leaves out the
headers by which rights are checked, its server passes messages from site to site, tells anybody the other sites'
tokens, and unpacks messages within messages that nobody has checked. So every cell, as FLARE calls a process's end of
the network, gets a gate. A gate knows the name in the certificate at the other end of the connection, which nobody can
choose, and compares with it what the message says of itself.

    at the coordinator's server   a site speaks for itself, to the server and its job, about joining and working
    at a site                     the server may start and end its job and answer; whoever is on the same machine
                                  and has the site's own name is the site
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
    ReturnCode,
)
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.drivers import socket_conn
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import STREAM_CHANNEL, STREAM_DATA_TOPIC, StreamHeaderKey
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from fedvi.federation.flare.names import ADMIN, CHANNEL, MESSAGE, RUNS, SERVER

LARGEST_FRAME = 64 << 20
"""Bytes that are taken from a connection at once; FLARE's own limit is two gigabytes."""

ANY = "*"
Kind = tuple[str, str]
"""Channel and topic of a request; of a stream, those that it says it is for."""

Gate = Callable[[str | None, str, str, Kind], bool]
"""Tells whether to let in a request: name in the certificate (None on the same machine), origin, destination, kind."""

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
    (CellChannel.CLIENT_MAIN, ANY),  # of which `PROCESSORS` are left
    (CHANNEL, RUNS),
    (CellChannel.CELLNET, CellChannelTopic.Bye),
}
SERVER_TO_SITES_JOB: set[Kind] = {
    (CellChannel.AUX_COMMUNICATION, "__end_run__"),
    (CellChannel.RETURN_ONLY, ANY),
    (STREAM_CHANNEL, ANY),
}
PROCESSORS = {
    "DeployProcessor",
    "StartJobProcessor",
    "CheckResourceProcessor",
    "CancelResourceProcessor",
    "AbortAppProcessor",
    "NotifyJobStatusProcessor",
}
"""What a site does when the server says so: take a job, start it, end it. No shell, no files, no logs."""


def at_server(peer: str | None, origin: str, destination: str, kind: Kind) -> bool:
    """Tell whether the coordinator's server lets a request in."""
    if peer is None:
        return _root(origin) == SERVER
    if peer == ADMIN:
        return destination == SERVER and _root(origin) != SERVER
    if _root(origin) != peer or _root(destination) != SERVER:
        return False
    return _among(kind, SITE_TO_SERVER if destination == SERVER else SITE_TO_JOB)


def at_servers_job(peer: str | None, origin: str, destination: str, kind: Kind) -> bool:
    """Tell whether the coordinator's half of a job lets a request in; all come by way of the server's gate."""
    return peer is None and destination != SERVER and (_root(origin) == SERVER or _among(kind, SITE_TO_JOB))


def at_site(peer: str | None, origin: str, destination: str, kind: Kind) -> bool:
    """Tell whether a site's process lets a request in."""
    if peer is None:
        return _root(origin) == _root(destination) or (_root(destination) == SERVER and _among(kind, SITE_TO_JOB))
    if _root(origin) != SERVER:
        return False
    return _among(kind, SERVER_TO_SITE if destination == _root(destination) else SERVER_TO_SITES_JOB)


def close(gate: Gate) -> None:
    """Put the gate before every cell that this process makes from now on, and take away what a site need not do."""
    original = getattr(cell.CoreCell, "ungated", cell.CoreCell)

    class Gated(original):  # type: ignore[misc, valid-type]
        ungated = original

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.set_message_interceptor(self.intercept)

        def intercept(self, request: Message) -> Message | None:
            """Return a refusal, or None to let the request in."""
            if admits(gate, request):
                return None
            said = f"{request.get_header(MessageHeaderKey.ORIGIN)} asked for {kind_of(request)}"
            self.logger.warning(f"Refused: {said}, by a connection of {request.get_prop(MessagePropKey.COMMON_NAME)}.")
            return make_reply(ReturnCode.UNAUTHENTICATED, error="This is not for you.")

    cell.CoreCell = Gated
    socket_conn.MAX_FRAME_SIZE = LARGEST_FRAME
    processors = ClientRequestProcessors.request_processors
    processors[:] = [each for each in processors if type(each).__name__ in PROCESSORS]


def admits(gate: Gate, request: Message) -> bool:
    """Tell whether a gate lets a request in; one that asks us to connect elsewhere never comes in."""
    if request.get_header(MessageHeaderKey.CONN_URL):
        return False
    peer = request.get_prop(MessagePropKey.COMMON_NAME)
    origin, destination = (
        str(request.get_header(key) or "") for key in (MessageHeaderKey.ORIGIN, MessageHeaderKey.DESTINATION)
    )
    return gate(None if peer is None else str(peer), origin, destination, kind_of(request))


def kind_of(request: Message) -> Kind:
    """Return channel and topic of a request; of the data of a stream, those that it is handed on to."""
    kind = _pair(request, MessageHeaderKey.CHANNEL, MessageHeaderKey.TOPIC)
    if kind == (STREAM_CHANNEL, STREAM_DATA_TOPIC):
        return _pair(request, StreamHeaderKey.CHANNEL, StreamHeaderKey.TOPIC)
    return kind


def _pair(request: Message, channel: str, topic: str) -> Kind:
    return str(request.get_header(channel, "")), str(request.get_header(topic, ""))


def _among(kind: Kind, kinds: set[Kind]) -> bool:
    return kind in kinds or (kind[0], ANY) in kinds


def _root(name: str) -> str:
    """Return whose process a cell is: `north` for `north` and `north.JOB`."""
    return name.partition(".")[0]
