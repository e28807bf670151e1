"""A user's program that mypy --strict accepts: every method of both clients, keywords of every type, and what comes back."""

import asyncio
from typing import Optional, Sequence

import foretoken
from foretoken import (
    AnswerForm, AsyncClient, Client, CurveKeys, ForetokenError, ForetokenTimeout, LogprobEntry, Piece, Prompt, Reply)
from foretoken.messages import Parameters, ServiceStatus, SpeculativeDecoding, Usage

version: str = foretoken.__version__
keys: Optional[CurveKeys] = None
talk: list[dict[str, str]] = [{"role": "user", "content": "Tell me a story."}]
prompts: Sequence[Prompt] = ["Once upon a time", [1, 2, 3], talk, [{"role": "user", "content": "Hi."}]]
common: Parameters = {"temperature": 0.8, "seed": 7}


def sum_of(entries: list[LogprobEntry]) -> float:
    return sum(entry["logprob"] or 0.0 for entry in entries)


def blocking() -> None:
    with Client("tcp://127.0.0.1:5555", timeout_s=60, curve=keys) as client:
        for prompt in prompts:
            reply: Reply = client.generate(prompt, **common)
        reply = client.generate(
            "x", model="m", temperature=0, top_k=-1, top_p=0.9, min_p=0.1, repetition_penalty=1.1, presence_penalty=0.5,
            frequency_penalty=0.5, logit_bias={7: -3}, seed=1, choice=2, max_tokens=8, min_tokens=1, stop_token_ids=(1, 2),
            ignore_eos=True, logprobs=True, prompt_logprobs=3, bad_words="x", stop=["a", "b"], include_stop_str_in_output=True, n=1,
            num_draft_tokens=4, proposer="ngram", adaptive=False, acceptance="coupled", prediction=None, timeout_ms=1000,
            request_id=bytes(16), skip_special_tokens=False, add_special_tokens=False, add_generation_prompt=True,
            token_ends=True, return_prompt_token_ids=True, tenant="t", priority=3)
        usage: Usage = reply.usage
        guessed: SpeculativeDecoding = reply.speculative_decoding
        histogram: dict[str, list[int]] = guessed["acceptance_histogram_by_draft_length"]
        speed: float = reply.metrics["tokens_per_second"]
        print(usage["prompt_tokens"], histogram, speed, sum_of(reply.logprobs), reply.text.upper(), reply.token_ids[0])
        form: Optional[AnswerForm] = reply.form
        markers: list[str] = form["marker_tokens"] if form else []
        print(markers, sum(reply.token_ends + reply.prompt_token_ids))
        pieces: list[Piece] = list(client.stream(talk, max_tokens=8, logprobs=2))
        last: Optional[Reply] = client.last_reply
        ids: list[int] = client.tokenize("x", model="m", add_special_tokens=False) + client.tokenize(talk, add_generation_prompt=False)
        text: str = client.detokenize(ids, model="m", skip_special_tokens=False) + client.metrics()
        services: list[ServiceStatus] = client.status()["services"]
        client.cancel(reply.id)
        print(pieces, last, text, [service["name"] for service in services])
        client.close()


async def asynchronous() -> None:
    async with AsyncClient() as client:
        replies: list[Reply] = await asyncio.gather(*(client.generate(prompt, max_tokens=4) for prompt in prompts))
        async for piece in client.stream("x", stop="y"):
            print(piece.text, piece.accepted, replies[0].finish_reason, sum(piece.token_ends + piece.prompt_token_ids), piece.form)
        ids: list[int] = await client.tokenize("x")
        print(await client.detokenize(ids), await client.metrics(), (await client.status())["ready"])
        client.cancel("00" * 16)
        client.close()


try:
    blocking()
    asyncio.run(asynchronous())
except ForetokenTimeout:
    pass
except ForetokenError as error:
    print(error.code, error.message, error.param, error.retry_after_ms + 1)
