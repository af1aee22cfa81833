from fedvi.audit.draws import Finding as Finding
from fedvi.audit.lattice_attack import Coupled as Coupled
from fedvi.audit.lattice_attack import couple as couple
from fedvi.audit.membership import AuditResult as AuditResult
from fedvi.audit.membership import audit_update as audit_update
from fedvi.audit.parts import audit_parts as audit_parts
from fedvi.audit.parts import audit_sum as audit_sum
from fedvi.audit.subject import Subject as Subject
