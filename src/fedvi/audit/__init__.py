"""Audits: the privacy of the code itself, attacked and measured."""

from fedvi.audit.coupling import Coupled, couple
from fedvi.audit.noise import Finding
from fedvi.audit.parts import audit_parts
from fedvi.audit.subject import Subject
from fedvi.audit.sums import audit_sum
from fedvi.audit.whole import Verdict, audit_update

__all__ = ["Coupled", "Finding", "Subject", "Verdict", "audit_parts", "audit_sum", "audit_update", "couple"]
