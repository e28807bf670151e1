"""Mutated HTTP requests: case i of a seed is always the same bytes. Valid requests to every route, then changes of bytes, headers, JSON,
chunks and the order of several requests on one connection."""

import copy
import json
import random

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "the cat sat"}], "max_tokens": 3, "seed": 7, "temperature": 0.5,
        "top_p": 0.9, "n": 2, "stop": ["zz"], "logprobs": True, "top_logprobs": 2, "logit_bias": {"20": -5}, "stream": False,
        "presence_penalty": 0.5, "frequency_penalty": -0.5, "speculation": {"proposer": "ngram", "draft_len": 3}, "user": "x"}
TEXT = {"model": "tiny", "prompt": ["the cat", [5, 6, 7]], "max_tokens": 3, "echo": True, "logprobs": 2, "seed": 3, "stream": True,
        "stream_options": {"include_usage": True}, "prediction": {"type": "content", "content": "the cat sat"}}
MESSAGE = {"model": "tiny", "max_tokens": 3, "system": [{"type": "text", "text": "be brief"}], "stop_sequences": ["zz"],
           "messages": [{"role": "user", "content": [{"type": "text", "text": "the cat"}]}], "stream": True}
TRITON = {"text_input": "the cat", "max_tokens": 3, "parameters": {"temperature": 0.7, "random_seed": 5}, "bad_words": ["q"],
          "return_log_probs": True}
ROUTES = [("POST", "/v1/chat/completions", CHAT), ("POST", "/v1/completions", TEXT), ("POST", "/v1/messages", MESSAGE),
          ("POST", "/v1/messages/count_tokens", {key: MESSAGE[key] for key in ("model", "system", "messages")}),
          ("POST", "/v2/models/tiny/generate", TRITON), ("POST", "/v2/models/tiny/generate_stream", TRITON),
          ("POST", "/tokenize", {"model": "tiny", "prompt": "the cat"}), ("POST", "/detokenize", {"model": "tiny", "tokens": [5, 6]}),
          *(("GET", path, None) for path in ("/v1/models", "/v1/models/tiny", "/health", "/live", "/version", "/props", "/metrics", "/",
                                             "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/tiny",
                                             "/v2/models/tiny/ready")),
          ("HEAD", "/health", None), ("OPTIONS", "/v1/completions", None)]
VALUES = [None, True, 0, -1, 1, 2**31, 2**63, -2**63, 2**64, 10**30, 0.1, 1e308, -0.0, "", "0", "\0", "\ud800", "é漢🎉", "x" * 5000, [],
          {}, [[]], [None], [1] * 3000, {"type": "text"}, {"a": {"b": {"c": []}}}, ["a"] * 200, [{"role": "user"}], "a\r\nb: c"]
HEADERS = [b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: 99999999999999999999", b"Content-Length: -1", b"Content-Length: 1e2",
           b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: identity", b"Expect: 100-continue",
           b"Connection: close", b"Connection: keep-alive", b"Connection: Upgrade\r\nUpgrade: h2c", b"Host: a b", b"Host:", b"Content-Encoding: gzip",
           b"Content-Type: text/plain", b"Authorization: Bearer x", b"Authorization: \xff\xfe", b"X: \0", b": nameless", b"X Y: 1",
           b"X:" + b"y" * 20000, b"\r\n".join(b"X-%d: 1" % i for i in range(100)), b" folded", b"Origin: https://example.org", b"x-request-id: \x7f",
           b"x-request-id: " + b"i" * 200, b"Accept-Encoding: br"]


def raw(method, path, body, headers=()):
    head = [f"{method} {path} HTTP/1.1".encode(), b"Host: localhost", *headers]
    if body is not None:
        head.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(head) + b"\r\n\r\n" + (body or b"")


def valid(dice):
    method, path, body = dice.choice(ROUTES[:8] * 3 + ROUTES[8:])
    return method, path, copy.deepcopy(body)


def mutated_bytes(dice, bytes_):
    bytes_ = bytearray(bytes_)
    for _ in range(dice.choice([1, 1, 2, 5, 20])):
        at = dice.randrange(len(bytes_) + 1)
        what = dice.randrange(5)
        if what == 0 and at < len(bytes_):
            bytes_[at] ^= 1 << dice.randrange(8)
        elif what == 1:
            bytes_[at:at] = dice.choice([b"\r\n", b"\0", b"\xff", b" ", b"{", b'"', b"\\u", b"%", bytes([dice.randrange(256)]) * dice.randint(1, 40)])
        elif what == 2:
            del bytes_[at:at + dice.choice([1, 2, 10, 100])]
        elif what == 3:
            bytes_[at:at] = bytes_[at:at + dice.randint(1, 60)]
        elif at < len(bytes_):
            bytes_[at] = dice.randrange(256)
    return bytes(bytes_)


def mutated_json(dice, body):
    for _ in range(dice.choice([1, 1, 2, 4])):
        place, key = body, None
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = dice.choice(keys)
            if not isinstance(place[key], (dict, list)) or dice.random() < 0.4:
                break
            place = place[key]
        what = dice.randrange(4)
        if what == 0 and isinstance(place, dict):
            place[dice.choice(["x", "", "model", "n", "tools", "best_of", "timeout_ms", "op", "request_id", "tenant"])] = copy.deepcopy(dice.choice(VALUES))
        elif key is not None and key in (place if isinstance(place, dict) else range(len(place))):
            if what == 1:
                del place[key]
            else:
                place[key] = copy.deepcopy(dice.choice(VALUES))
    text = json.dumps(body, ensure_ascii=dice.random() < 0.5)
    if dice.random() < 0.15:
        text = dice.choice([text[:-1] + ', "model": "tiny"}', text + text, "[" * 5000, text.replace(":", ":" + "[" * 40, 1), text[:len(text) // 2],
                            text.replace('"', "'"), "\ufeff" + text, text.replace("1", "NaN")])
    return text.encode("utf-8", "surrogatepass")


def mutated_headers(dice, request):
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    for _ in range(dice.choice([1, 1, 2])):
        what = dice.randrange(4)
        if what == 0 and len(lines) > 1:
            del lines[dice.randrange(1, len(lines))]
        elif what == 1:
            lines.append(dice.choice(lines))
        elif what == 2:
            lines[0] = dice.choice([lines[0].replace(b"1.1", b"1.0"), lines[0].replace(b"1.1", b"2.0"), lines[0].replace(b" /", b" //"),
                                    lines[0].replace(b"/v1", b"/v1/../v1"), lines[0].replace(b"tiny", b"%2e%2e%2f%00"), b"PRI * HTTP/2.0",
                                    lines[0].replace(b" HTTP", b"?" + b"q" * 9000 + b" HTTP"), lines[0].lower(), b"GET http://a/ HTTP/1.1", b""])
        else:
            lines.insert(dice.randrange(1, len(lines) + 1), dice.choice(HEADERS))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(dice, method, path, body):
    request = raw(method, path, None, [b"Transfer-Encoding: chunked"])
    at = 0
    while at < len(body):
        part = body[at:at + dice.choice([1, 7, 50, 4000])]
        at += len(part)
        size = dice.choice([b"%x", b"%X", b"%x", b"000%x", b"%x;a=b", b"%x ", b"-%x", b"0x%x"] if dice.random() < 0.1 else [b"%x"]) % len(part)
        request += size + b"\r\n" + part + (b"\n" if dice.random() < 0.01 else b"\r\n")
    return request + dice.choice([b"0\r\n\r\n"] * 8 + [b"", b"0\r\nTrailer: x\r\n\r\n", b"0\r\n", b"ffffffffffffffff\r\n\r\n"])


def one(dice):
    method, path, body = valid(dice)
    kind = dice.randrange(6)
    if body is not None and kind in (1, 2, 3):
        body = mutated_json(dice, body)
    elif body is not None:
        body = json.dumps(body).encode()
    if body is not None and (kind == 4 or (kind == 3 and dice.random() < 0.5)):
        request = chunked(dice, method, path, body)
    else:
        request = raw(method, path, body)
    if kind == 0:
        request = mutated_bytes(dice, request)
    elif kind in (3, 5):
        request = mutated_headers(dice, request)
    return request


def case(seed, index):
    """The bytes of one connection, and how its client leaves: "wait" for the answer, or "fin" or "rst" at once."""
    dice = random.Random(f"{seed}/{index}")
    request = one(dice)
    if dice.random() < 0.15:
        request = b"".join([request, *(one(dice) for _ in range(dice.randint(1, 4)))])
    # How many bytes the reply to HEAD has depends on which request it answers: only the first may be one.
    request = request[:5] + request[5:].replace(b"HEAD ", b"GET ")
    return request, dice.choice(["wait"] * 10 + ["fin", "rst"])
