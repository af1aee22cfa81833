from fedvi.audit.coupling import Coupled as Coupled
from fedvi.audit.coupling import couple as couple
from fedvi.audit.membership import AuditResult as AuditResult
from fedvi.audit.membership import audit_update as audit_update
from fedvi.audit.noise import Finding as Finding
from fedvi.audit.parts import audit_parts as audit_parts
from fedvi.audit.subject import Subject as Subject
from fedvi.audit.sums import audit_sum as audit_sum
