"""Values <-> JSON text by type annotation: what is stored is what returns."""

from .arguments import (
    ArgumentsCodec,
    arguments_codec,
    encode_named_arguments,
    encode_plain_arguments,
    return_codec,
)
from .sizes import MOST_BYTES, within_limit
from .values import PLAIN, Codec, codec_for

__all__ = [
    "MOST_BYTES",
    "PLAIN",
    "ArgumentsCodec",
    "Codec",
    "arguments_codec",
    "codec_for",
    "encode_named_arguments",
    "encode_plain_arguments",
    "return_codec",
    "within_limit",
]
