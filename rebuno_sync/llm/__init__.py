"""Model calls as durable steps, whatever HTTP client makes them."""

from .botocore_wire import record_boto
from .everywhere import record_all
from .httpx_wire import httpx_client, httpx_transport
from .recorder import RANDOMISED
from .requests_wire import RecordingAdapter, http_client
from .unrecorded import UnrecordedRequest, warn_unrecorded

__all__ = [
    "RANDOMISED",
    "RecordingAdapter",
    "UnrecordedRequest",
    "http_client",
    "httpx_client",
    "httpx_transport",
    "record_all",
    "record_boto",
    "warn_unrecorded",
]
