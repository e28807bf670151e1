"""A client for Foretoken: text in, the target's exact words out, over ZeroMQ and msgpack.

    from foretoken import Client
    with Client("tcp://127.0.0.1:5555") as client:
        print(client.generate("Once upon a time", max_tokens=64).text)
        for piece in client.stream("Once upon a time", max_tokens=64):
            print(piece.text, end="", flush=True)

Needs pyzmq and msgpack. A Client belongs to one thread; an AsyncClient to one event loop, and any number of its calls may
be under way at once. A connection that breaks is made again and what is unanswered is asked again under the same
request_id, which gives the same text: it only takes longer. timeout_s is the bound of each call.
The keywords of a request and the maps in answers are the classes of foretoken.messages, with a comment for each key.
"""

from ._answers import AnswerForm, ForetokenError, ForetokenTimeout, Piece, Reply
from ._clients import AsyncClient, Client
from ._connection import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, CurveKeys
from ._requests import MAX_REQUEST_BYTES, Messages, Prompt
from .messages import LogprobEntry, ModelStatus, Parameters, ReplyMetrics, ServiceStatus, SpeculativeDecoding, StatusReply, Usage

__version__ = "0.1.0"

__all__ = [
    "AnswerForm", "AsyncClient", "Client", "CurveKeys", "DEFAULT_ENDPOINT", "DEFAULT_TIMEOUT_S", "ForetokenError", "ForetokenTimeout",
    "LogprobEntry", "MAX_REQUEST_BYTES", "Messages", "ModelStatus", "Parameters", "Piece", "Prompt", "Reply", "ReplyMetrics",
    "ServiceStatus", "SpeculativeDecoding", "StatusReply", "Usage", "__version__",
]
