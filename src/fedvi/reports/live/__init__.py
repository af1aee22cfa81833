"""The live page of a running federation: what the coordinator knows, shown in a browser while it happens."""

from fedvi.reports.live.server import LivePage

__all__ = ["LivePage"]
