"""What policy says of a new step (protocol.md 11). Pure: text in, a verdict out."""

from .bundle import compiled
from .document import BundleInvalid
from .rules import Policy
from .trial import CaseInvalid, Report, Trial, TrialCase, try_out
from .verdict import (
    BUNDLE_ERROR,
    INDETERMINATE_RETRY,
    PERMISSIVE,
    UNKNOWN_AGENT,
    Action,
    Approvers,
    Budget,
    RateLimit,
    Verdict,
)

__all__ = [
    "BUNDLE_ERROR",
    "INDETERMINATE_RETRY",
    "PERMISSIVE",
    "UNKNOWN_AGENT",
    "Action",
    "Approvers",
    "Budget",
    "BundleInvalid",
    "CaseInvalid",
    "Policy",
    "RateLimit",
    "Report",
    "Trial",
    "TrialCase",
    "Verdict",
    "compiled",
    "try_out",
]
