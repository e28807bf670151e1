"""What goes out: the map of a request and its bytes."""

from __future__ import annotations

import collections.abc
import json
import os
from typing import Any, Mapping, Sequence, Union

import msgpack

from ._answers import ForetokenError

MAX_REQUEST_BYTES = 1 << 20  # the router's socket drops a larger one without a word
Messages = Sequence[Mapping[str, object]]  # {"role": ..., "content": ...} each
Prompt = Union[str, Sequence[int], Messages]


def prompt_entry(prompt: Prompt) -> tuple[str, Any]:
    """The key a prompt travels under: a string is a prompt, dicts are chat messages, integers are token ids."""
    if isinstance(prompt, str):
        return "prompt", prompt
    accepted = "a prompt is a string, a list of messages (dicts with role and content) or a list of token ids (integers)"
    if not isinstance(prompt, collections.abc.Sequence) or isinstance(prompt, (bytes, bytearray, memoryview)):
        raise TypeError(f"{accepted}; this one is of type {type(prompt).__name__}")
    items = list(prompt)
    kind: type = collections.abc.Mapping if items and isinstance(items[0], collections.abc.Mapping) else int
    for i, item in enumerate(items):
        if not isinstance(item, kind) or isinstance(item, bool):
            raise TypeError(f"{accepted}; item {i} of this one is of type {type(item).__name__}")
    return ("token_ids" if kind is int else "messages"), items


def schema_text(schema: Mapping[str, Any]) -> str:
    """Its keys in their order: an answer has them so."""
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False, default=plain)
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"json_schema cannot be sent: {error}") from error


def request_map(prompt: Prompt, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The map that travels, the id first: the router names it in an error even if it cannot read the rest."""
    given = {key: value for key, value in parameters.items() if value is not None}
    if isinstance(given.get("json_schema"), collections.abc.Mapping):
        given["json_schema"] = schema_text(given["json_schema"])
    key, value = prompt_entry(prompt)
    request = {"request_id": given.pop("request_id") if "request_id" in given else os.urandom(16), key: value, **given}
    proposer = request.get("proposer", ())
    names = (proposer,) if isinstance(proposer, str) else proposer
    if "prediction" in names and not request.get("prediction"):
        raise ForetokenError("invalid_value", "the prediction proposer needs the expected answer", "prediction")
    return request


def whole_map(prompt: Prompt, parameters: Mapping[str, Any]) -> dict[str, Any]:
    if parameters.get("stream"):
        raise ValueError("generate() returns the whole answer; for pieces as they come call stream()")
    return request_map(prompt, parameters)


def stream_map(prompt: Prompt, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return request_map(prompt, {**parameters, "stream": True})


def op_map(op: str, **parameters: Any) -> dict[str, Any]:
    """A request for something else than text."""
    return {"request_id": os.urandom(16), "op": op, **{key: value for key, value in parameters.items() if value is not None}}


def tokenize_map(prompt: Union[str, Messages], **parameters: Any) -> dict[str, Any]:
    key, value = prompt_entry(prompt)
    return op_map("tokenize", **{key: value}, **parameters)


def id_text(request_id: Union[bytes, str]) -> str:
    """The id as answers spell it. An id the router could not read would never be answered under it."""
    text = request_id.hex() if isinstance(request_id, bytes) else str(request_id).lower()
    if len(text) != 32 or not set(text) <= set("0123456789abcdef"):
        raise ForetokenError("invalid_value", "request_id must be 16 bytes or 32 hexadecimal digits", "request_id")
    return text


def plain(value: object) -> object:
    """What msgpack does not pack by itself: sequences and mappings of other classes."""
    if isinstance(value, int):
        raise OverflowError("an integer of more than 64 bits")
    if isinstance(value, collections.abc.Mapping):
        return dict(value)
    if isinstance(value, collections.abc.Sequence):
        return list(value)
    raise TypeError(f"a value of type {type(value).__name__}")


def pack(value: object) -> bytes:
    return bytes(msgpack.packb(value, default=plain))


def pack_request(request: Mapping[str, Any]) -> bytes:
    try:
        data = pack(request)
    except (TypeError, ValueError, OverflowError):
        for key, value in request.items():
            try:
                pack(value)
            except (TypeError, ValueError, OverflowError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"{key} cannot be sent: {error}") from error
        raise
    if len(data) > MAX_REQUEST_BYTES:
        raise ForetokenError("invalid_value", f"the request has {len(data)} bytes; the limit is {MAX_REQUEST_BYTES}")
    return data
