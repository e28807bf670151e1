# Generated from common/messages/client.h and common/base/sampling_params.h; a test compares. Rewrite with FORETOKEN_UPDATE_GOLDEN=1.
"""What a request may say and what answers hold: the keys of docs/reference/client.md as types."""

from __future__ import annotations

from typing import Literal, Mapping, Optional, Sequence, TypedDict, Union


class Parameters(TypedDict, total=False):
    """Keywords of generate() and stream(); None is as good as not given."""

    # which model; an unknown name is refused
    model: Optional[str]

    # randomness of the choice; 0 = greedy (from 0 to 100)
    temperature: Optional[float]

    # only the k likeliest tokens; 0 and -1 = off (from 0 to 2147483647, or -1)
    top_k: Optional[int]

    # only the likeliest tokens that together have this probability; 1 = off (above 0 and at most 1)
    top_p: Optional[float]

    # only tokens at least this likely, relative to the likeliest; 0 = off (from 0 and below 1)
    min_p: Optional[float]

    # for tokens that prompt or answer has; 1 = off (above 0 and at most 100)
    repetition_penalty: Optional[float]

    # for tokens that the answer has; 0 = off (from -2 to 2)
    presence_penalty: Optional[float]

    # for each time the answer has a token; 0 = off (from -2 to 2)
    frequency_penalty: Optional[float]

    # token id -> what is added to its logit (from -100 to 100)
    logit_bias: Optional[Mapping[int, float]]

    # same seed and request, same answer, with any draft
    seed: Optional[int]

    # which of several answers to one prompt with one seed; each is as reproducible as the first, 0 (from 0 to 127)
    choice: Optional[int]

    # longest answer in tokens; 0, no answer, only with prompt_logprobs; 4294967295 = to the end of the context (from 0 to 4294967295)
    max_tokens: Optional[int]

    # end and stop tokens are masked before so many; a stop string they complete is text (from 0 to 4294967295)
    min_tokens: Optional[int]

    # token ids that end the answer, besides the model's own
    stop_token_ids: Optional[Sequence[int]]

    # the model's end tokens do not end the answer
    ignore_eos: Optional[bool]

    # log-probability of each token, and of so many likeliest ones (from 0 to 20)
    logprobs: Union[bool, int, None]

    # log-probability of each token of the prompt but the first, and of so many likeliest ones (from 0 to 20)
    prompt_logprobs: Union[bool, int, None]

    # JSON Schema that the answer's text must satisfy, as JSON text; at most one of json_schema, regex and gbnf
    json_schema: Union[str, Mapping[str, object], None]

    # regular expression that the whole answer must match
    regex: Optional[str]

    # grammar in llama.cpp's GBNF that the answer must follow
    gbnf: Optional[str]

    # texts that must not appear
    bad_words: Union[str, Sequence[str], None]

    # texts that end the answer
    stop: Union[str, Sequence[str], None]

    # the stop text belongs to the answer, and so does the text of the token that ended it
    include_stop_str_in_output: Optional[bool]

    # number of answers to one request; for several, send requests with one seed and choice 0, 1, 2 ... (1)
    n: Optional[int]

    # max_tokens beyond what the context has room for is cut to that, not refused
    fit_max_tokens: Optional[bool]

    # most guessed tokens per round; 0 = plain decoding (from 0 to 32)
    num_draft_tokens: Optional[int]

    # sources of proposals, one or a list: draft, ngram (prompt lookup), prediction, memory (of texts); default = as configured, and prediction where one is given; none = plain decoding
    proposer: Union[Literal["default", "draft", "ngram", "prediction", "none", "memory"], Sequence[Literal["default", "draft", "ngram", "prediction", "none", "memory"]], None]

    # guess less when it does not pay
    adaptive: Optional[bool]

    # how guesses are judged: coupled in this release
    acceptance: Optional[Literal["coupled", "rejection"]]

    # text the answer is expected to resemble, used as guesses
    prediction: Optional[str]

    # after this the request ends with what there is (finish_reason deadline), or with deadline_exceeded without a token; a pass of the target under way is finished first (from 1 to 3600000)
    timeout_ms: Optional[int]

    # asking again under the same id is harmless
    request_id: Union[bytes, str, None]

    # special tokens give no text
    skip_special_tokens: Optional[bool]

    # prompt only: begin as the tokenizer does by default
    add_special_tokens: Optional[bool]

    # messages only: open the assistant's turn
    add_generation_prompt: Optional[bool]

    # messages only: the answer continues the last one
    continue_final_message: Optional[bool]

    # messages only: JSON text of a list of tools, for the model's chat template
    tools: Optional[str]

    # with tools: whether the answer may, may not or must begin with a call
    tool_choice: Optional[Literal["auto", "none", "required"]]

    # with tool_choice required: the tool that is called; empty = any
    tool_name: Optional[str]

    # messages only: JSON text of an object of variables for the model's chat template
    chat_template_kwargs: Optional[str]

    # answers say where the text of each token ends, and how calls of tools and thoughts are marked; those markers leave their text
    token_ends: Optional[bool]

    # the answer has the token ids of the prompt
    return_prompt_token_ids: Optional[bool]

    # whose request it is: tenants take turns by limits.tenant_weights and share no prefix cache
    tenant: Optional[str]

    # higher goes first among the waiting requests of its tenant, or of its connection (from 0 to 255)
    priority: Optional[int]


class Usage(TypedDict):
    """Token counts of an answer."""

    # tokens of the prompt
    prompt_tokens: int

    # tokens delivered
    completion_tokens: int

    # both
    total_tokens: int

    # prompt tokens found in the prefix cache
    cached_tokens: int


class SpeculativeDecoding(TypedDict):
    """What guessing ahead did for an answer."""

    # 1 + accepted / rounds; tokens per round
    mean_acceptance_length: float

    # accepted / drafted; 0 if nothing was drafted
    draft_acceptance_rate: float

    # rounds that accepted 0, 1, 2 ... num_spec_tokens tokens; zeros without rounds
    acceptance_histogram: list[int]

    # a map: by the guesses that rounds verified (1, 2 ...), those rounds that accepted 0, 1, 2 ... of them; together acceptance_histogram
    acceptance_histogram_by_draft_length: dict[str, list[int]]

    # rounds that verified at least one guess: the sum of acceptance_histogram
    num_spec_steps: int

    # guesses that were delivered
    num_accepted_draft_tokens: int

    # guesses verified
    num_draft_tokens: int

    # most guesses per round this request allowed
    num_spec_tokens: int

    # of the guesses delivered, those that the request's prediction was surest of
    num_accepted_prediction_tokens: int

    # likewise, of the guesses verified
    num_prediction_tokens: int

    # who guessed: draft, ngram, prediction, memory or none; several joined by +
    proposer: str

    # why speculation was not or no longer used; empty = it was
    fallback_reason: str


class ReplyMetrics(TypedDict):
    """Times of an answer, and what guessing ahead did."""

    # arrival at the router to first token
    time_to_first_token_ms: float

    # first token to last, at the target; at the router where the answer moved to another
    generation_time_ms: float

    # waiting for a place at a target, in the router and then in the target
    queue_time_ms: float

    # completion tokens after the first / generation time
    tokens_per_second: float

    # what guessing ahead did
    speculative_decoding: SpeculativeDecoding

    # arrival at the router to the prompt's tokens there, waiting for a tokenizer included
    tokenize_time_ms: float


class LogprobEntry(TypedDict):
    """A token with its log-probability, and the likeliest ones."""

    # the token, of the answer or the prompt
    token_id: int

    # its natural log-probability, from the target's raw logits; nil for a prompt's first token
    logprob: Optional[float]

    # the likeliest ids, best first
    top_ids: list[int]

    # theirs, same order
    top_logprobs: list[float]

    # the delivered token's own text; bytes that are no UTF-8 become U+FFFD
    token: str

    # its bytes as they are, part of a character too (msgpack bin); empty from a tokenizer of protocol 1.1
    bytes: bytes

    # texts of the likeliest, same order
    top_tokens: list[str]

    # bytes of the likeliest, same order
    top_bytes: list[bytes]


class ServiceStatus(TypedDict):
    """One service, as `foretoken ps` shows it."""

    # router, tokenizer, draft, target or edge
    role: str

    # such as draft-0
    name: str

    # ready, draining, refused or gone
    state: str

    # where it takes connections, if it does
    endpoint: str

    # the model it runs, if any
    model: str

    # version, commit, instruction set
    build: str

    # process id on its host
    pid: int

    # seconds since it started
    uptime_s: int

    # resident memory
    rss_bytes: int

    # sequences or streams being worked on
    active: int

    # requests waiting
    queued: int

    # KV blocks
    kv_blocks_total: int

    # of those, free
    kv_blocks_free: int

    # tokens committed, drafted or decoded
    tokens_total: int

    # target: guesses verified
    drafted_total: int

    # target: guesses accepted
    accepted_total: int

    # why it is not used, if it is not
    note: str

    # target: its drafts and how it reaches each: draft-0 shared_memory
    links: str

    # where its model runs, if it has one: cpu, cuda:0
    device: str

    # types of its weights in memory: bfloat16, int8
    dtype: str

    # target: the proposers of requests that name none; several joined by +
    proposer: str

    # target: most guessed tokens per round that a draft says, unless a request names a length
    draft_len: int

    # tokenizer: how its model writes calls of tools: none, hermes, llama or mistral
    tool_format: str

    # target: longest prompt and answer in tokens
    max_model_len: int

    # of its model: equal = same weights, vocabulary and template
    fingerprint: str


class ModelStatus(TypedDict):
    """One model, as clients may ask for it."""

    # its name
    name: str

    # other names for it
    aliases: list[str]

    # longest prompt and answer in tokens
    max_model_len: int

    # targets that take requests for it now
    n_targets: int

    # one of them has a tokenizer, too
    ready: bool

    # requests that name no model, or "default", mean this one
    is_default: bool

    # of a request that gives none; 0 = greedy
    temperature: float

    # of a request that gives none; 0 = off
    top_k: int

    # of a request that gives none; 1 = off
    top_p: float

    # of a request that gives none; 0 = off
    min_p: float

    # of a request that gives none; 1 = off
    repetition_penalty: float


class StatusReply(TypedDict):
    """Every service, and what they serve."""

    # the request id
    id: str

    # true: nothing follows
    done: bool

    # a request could be served now
    ready: bool

    # names a request may ask for
    models: list[str]

    # every service, the router first
    services: list[ServiceStatus]

    # requests in work
    requests_active: int

    # requests accepted since the router started
    requests_total: int

    # every model that has a target, by name
    model_states: list[ModelStatus]
