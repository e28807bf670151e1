"""What comes back: pieces, whole answers and errors, made of the maps that the router sends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional, TypedDict, Union

import msgpack

from .messages import LogprobEntry, ReplyMetrics, SpeculativeDecoding, Usage


class ForetokenError(Exception):
    """The service refused or could not finish a request."""

    def __init__(self, code: str, message: str, param: str = "", retry_after_ms: int = 0) -> None:
        super().__init__(f"{code}: {message}" + (f" ({param})" if param else ""))
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_ms = retry_after_ms


class ForetokenTimeout(ForetokenError):
    """No answer in time; whether the request was done is unknown, and a retry under its id is harmless."""


class AnswerForm(TypedDict):
    """How an answer is to be read, where `token_ends` was asked for."""

    # how the model writes calls of tools: none, hermes, llama or mistral
    tool_format: str

    # the texts that mark calls and thoughts, of those that are one token: spelled in several they are text
    marker_tokens: list[str]

    # the model writes what it thinks, between <think> and </think>
    reasons: bool

    # what the end of the prompt has of the answer, before its first token
    begun: str


@dataclass
class Piece:
    """A part of a streamed answer. `accepted` of its tokens had been guessed ahead; `position` tokens came before it.

    `prompt_logprobs`, `prompt_token_ids` and `form` are in the first one, if they were asked for.
    """

    text: str
    token_ids: list[int]
    accepted: int = 0
    logprobs: list[LogprobEntry] = field(default_factory=list)
    position: int = 0
    prompt_logprobs: list[LogprobEntry] = field(default_factory=list)
    token_ends: list[int] = field(default_factory=list)  # bytes of the whole answer up to the end of each token
    form: Optional[AnswerForm] = None
    prompt_token_ids: list[int] = field(default_factory=list)


@dataclass
class Reply:
    """A whole answer."""

    id: str
    text: str
    token_ids: list[int]
    finish_reason: str
    stop_reason: Union[str, int, None]
    usage: Usage
    metrics: ReplyMetrics
    model: str
    logprobs: list[LogprobEntry] = field(default_factory=list)
    system_fingerprint: str = ""
    prompt_logprobs: list[LogprobEntry] = field(default_factory=list)
    token_ends: list[int] = field(default_factory=list)  # bytes of the answer up to the end of each token
    form: Optional[AnswerForm] = None
    prompt_token_ids: list[int] = field(default_factory=list)

    @property
    def speculative_decoding(self) -> SpeculativeDecoding:
        return self.metrics["speculative_decoding"]


def unpack_answer(data: bytes) -> dict[str, Any]:
    try:
        answer = msgpack.unpackb(data, raw=False)
        if isinstance(answer, dict):
            return answer
    except (ValueError, msgpack.exceptions.UnpackException):
        pass
    return error_answer("malformed", "an answer is not a msgpack map")


def error_answer(code: str, message: str) -> dict[str, Any]:
    return {"id": "", "done": True, "error": {"code": code, "message": message}}


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        error = answer["error"]
        raise ForetokenError(error.get("code", "internal"), error.get("message", ""), error.get("param") or "",
                             error.get("retry_after_ms", 0))
    return answer


def reply_of(answer: dict[str, Any], before: Optional[Stream] = None) -> Reply:
    """The last map of an answer, and what pieces carried before it."""
    before = before or Stream()
    return Reply(
        id=answer["id"], text=before.text + answer["text"], token_ids=[*before.token_ids, *answer["token_ids"]],
        finish_reason=answer["finish_reason"], stop_reason=answer.get("stop_reason"), usage=answer["usage"],
        metrics=answer["metrics"], model=answer.get("model", ""),
        logprobs=[*before.logprobs, *answer.get("logprobs", [])], system_fingerprint=answer.get("system_fingerprint", ""),
        prompt_logprobs=[*(before.prompt_logprobs or answer.get("prompt_logprobs", []))],
        token_ends=[*before.token_ends, *answer.get("token_ends", [])], form=before.form or answer.get("form"),
        prompt_token_ids=[*(before.prompt_token_ids or answer.get("prompt_token_ids", []))])


def is_last(answer: dict[str, Any]) -> bool:
    return bool(answer.get("done", True))


def answers_a_cancel(answer: dict[str, Any]) -> bool:
    """Each cancel gets one: the request's end, or an error because none of that id runs."""
    error = answer.get("error") or {}
    return answer.get("finish_reason") == "cancelled" or (error.get("code"), error.get("param")) == ("not_found", "request_id")


def piece_of(answer: dict[str, Any]) -> Piece:
    return Piece(answer["text"], list(answer["token_ids"]), answer.get("accepted", 0), answer.get("logprobs", []),
                 answer.get("position") or 0, answer.get("prompt_logprobs", []), answer.get("token_ends", []), answer.get("form"),
                 answer.get("prompt_token_ids", []))


class Stream:
    """Keeps what pieces carried, so that the reply at the end is whole."""

    def __init__(self) -> None:
        self.text = ""
        self.token_ids: list[int] = []
        self.logprobs: list[LogprobEntry] = []
        self.prompt_logprobs: list[LogprobEntry] = []
        self.token_ends: list[int] = []
        self.form: Optional[AnswerForm] = None
        self.prompt_token_ids: list[int] = []
        self.reply: Optional[Reply] = None

    def take(self, answer: dict[str, Any]) -> Optional[Piece]:
        last = is_last(answer)
        piece = piece_of(answer)
        if last:
            self.reply = reply_of(answer, self)
        self.text += piece.text
        self.token_ids += piece.token_ids
        self.logprobs += piece.logprobs
        self.prompt_logprobs = self.prompt_logprobs or piece.prompt_logprobs
        self.token_ends += piece.token_ends
        self.form = self.form or piece.form
        self.prompt_token_ids = self.prompt_token_ids or piece.prompt_token_ids
        return piece if piece.text or piece.token_ids or not last else None
