"""Audits: the privacy of the code itself, attacked and measured."""

from fedvi.audit.parts import Finding, audit_parts
from fedvi.audit.subject import Subject
from fedvi.audit.whole import Verdict, audit_update

__all__ = ["Finding", "Subject", "Verdict", "audit_parts", "audit_update"]
