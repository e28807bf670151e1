"""Golden bytes of every message of protocol 1.6, by an independent packer and an independent listing of the fields.

usage: make_golden.py FOLDER     writes <message>.hex: header and body, one line each, and client_request.hex

The values follow one rule, which the test repeats over the listing of messages.h: field number k of a record is
bool k odd | unsigned min(1000 k + 7, largest) | i32 k - 3 | f32 k / 4 | closed list k mod its size | text "s<k>é" |
ids [k, 70000 + k] | u8s [0, 1, 255] | u16s [65535, k] | u32s [k] | f32s [-k / 4] | texts ["a", "<k>"] |
id lists [[k], [k + 1, k + 2]] | pairs [[k, -k / 2]] | a record or one record in a list, by the same rule.
"""
import pathlib
import struct
import sys

import msgpack

LIMITS = {"u8": 0xFF, "u16": 0xFFFF, "u32": 0xFFFFFFFF, "u64": 0xFFFFFFFFFFFFFFFF}
RECORDS = {
    "Fingerprints": "u64 u64 u64 u64",
    "SamplingDefaults": "f32 u32 f32 f32 f32",
    "SamplingParams": "f32 u32 f32 f32 f32 f32 f32 pairs idlists u64 u32 u32 u32 ids bool i32 i32 text text text",
    "TokenLogprobs": "f32 ids f32s",
    "ProposerStats": "enum5 u32 u32 u32",
    "RoundsOfLength": "u32 u32s",
    "Passes": "u64 u64 u32s u32s u32s u32s u32s u32s u32s u32s u32s",
    "DraftSetAside": "u64 text u32",
    "ProposeRecord": "u64 u32 u32 u32 ids u64 u32",
    "ProposalRecord": "u64 u32 u32 u32 u64 ids u16s u8s u32 u32 bool",
}
MESSAGES = {
    "Hello": (1, "enum6 text text Fingerprints u8 text texts u32 ids u32 u32 u32 u32 u32 text u64 "
              "SamplingDefaults text text enum5 u32 text text enum2 u32"),
    "HelloReply": (2, "bool code text u32"),
    "Heartbeat": (3, "u64 u32 u32 u64 u32 bool u32 u32 u64 u64 u64 u64 u64 u64 text text u64 "
                  "enum3 u64 u64 [DraftSetAside]"),
    "HeartbeatReply": (4, "u64 bool bool"),
    "Goodbye": (5, "text"),
    "Assign": (6, "u64 u64 text text Fingerprints u32 u32 enum2"),
    "Unassign": (7, "u64 u64 text"),
    "DraftLost": (8, "u64 u64 text"),
    "MetricsRequest": (9, "u64 bool"),
    "MetricsReply": (10, "text Passes"),
    "Encode": (32, "enum3 text ids bool bool texts text u64 text enum3 text bool bool"),
    "Encoded": (33, "ids idlists ids text texts bool text"),
    "Open": (34, "ids u32 SamplingParams ids enum5 i32 bool ids u64 u8 u64 u64 f32 u32 u32 u32"),
    "Opened": (35, "u32"),
    "Busy": (36, "code text u32"),
    "Tokens": (37, "u32 ids u8s [TokenLogprobs]"),
    "Done": (38, "enum4 i32 u32 u32 [ProposerStats] u32s u32 u64 text i32 [RoundsOfLength] u32"),
    "Close": (39, "enum6"),
    "Failed": (40, "code text text u32"),
    "StreamOpen": (48, "texts bool bool u32 u32 bool ids bool"),
    "Decode": (49, "u32 ids bool ids"),
    "Text": (50, "u32 text bool text u32 bool u32 ids u32s u8s u32s"),
    "StreamClose": (51, "enum6"),
    "Attach": (64, "u64 u32 u64 enum2 u8 SamplingParams u32 ids u64 u32 u64 u64 ids"),
    "Propose": (65, "[ProposeRecord]"),
    "Proposal": (66, "[ProposalRecord]"),
    "Need": (67, "u64 u32 u32 u64 enum5"),
    "CloseSequence": (68, "u64 u32 u32 ids"),
    "DraftBusy": (69, "u64 u32 u32"),
    "LinkAsk": (70, "text text u32"),
    "LinkOffer": (71, "text u64 text"),
    "LinkOpen": (72, "u64"),
}


class F32(float):
    """Packed as binary32."""


def value(kind, k):
    if kind in LIMITS:
        return min(1000 * k + 7, LIMITS[kind])
    if kind.startswith("enum"):
        return k % int(kind[4:])
    if kind.startswith("["):
        return [record(RECORDS[kind[1:-1]])]
    if kind in RECORDS:
        return record(RECORDS[kind])
    ints = lambda code, *numbers: struct.pack("<%d%s" % (len(numbers), code), *numbers)
    return {
        "bool": k % 2 == 1, "code": k, "i32": k - 3, "f32": F32(k / 4), "text": "s%dé" % k,
        "ids": ints("i", k, 70000 + k), "u8s": bytes([0, 1, 255]), "u16s": ints("H", 65535, k), "u32s": ints("I", k),
        "f32s": ints("f", -k / 4), "texts": ["a", str(k)], "idlists": [ints("i", k), ints("i", k + 1, k + 2)],
        "pairs": [[k, F32(-k / 2)]],
    }[kind]


def record(kinds):
    return [value(kind, k) for k, kind in enumerate(kinds.split(), 1)]


def pack(item):
    """msgpack with 32-bit floats only where a field is one."""
    if isinstance(item, F32):
        return msgpack.packb(float(item), use_single_float=True)
    if isinstance(item, list):
        return msgpack.Packer().pack_array_header(len(item)) + b"".join(pack(x) for x in item)
    return msgpack.packb(item, use_bin_type=True)


def header(number, body):
    return struct.pack("<4sBBHIIQQQQQ", b"FTKN", 1, 6, number, 0, len(body), 0x1122334455667788, 0x99AABBCCDDEEFF00,
                       0x0102030405060708, 0xF1F2F3F4F5F6F7F8, 42)


CLIENT_REQUEST = {
    "messages": [{"role": "system", "content": "Be brief.", "extra": "{\"name\": \"x\"}"},
                 {"role": "user", "content": [{"type": "text", "text": "Say \"é\"\n"}, {"type": "text", "text": "now"}]}],
    "model": "demo", "max_tokens": 64, "min_tokens": 2, "temperature": 0.75, "top_k": 40, "top_p": 0.5, "min_p": 0.25,
    "repetition_penalty": 1.5, "presence_penalty": -0.5, "frequency_penalty": 0.5, "logit_bias": {7: -100, "9": 2.5},
    "bad_words": ["damn"], "stop": "\n\n", "stop_token_ids": [3, 5], "ignore_eos": True, "seed": -1, "n": 1, "logprobs": True,
    "prompt_logprobs": 4,
    "stream": True, "num_draft_tokens": 0, "proposer": "ngram", "adaptive": False, "prediction": "yes", "choice": 7, "timeout_ms": 5000,
    "request_id": bytes(range(16)), "skip_special_tokens": False, "include_stop_str_in_output": True,
    "add_generation_prompt": False, "add_special_tokens": False, "tenant": "acme", "priority": 9, "acceptance": "coupled",
    "op": None, "tools": "[]", "tool_choice": "required", "tool_name": "add", "chat_template_kwargs": "{\"a\": 1}",
    "continue_final_message": True, "token_ends": True,
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (number, kinds) in MESSAGES.items():
        body = pack(record(kinds))
        (folder / f"{name}.hex").write_text(header(number, body).hex() + "\n" + body.hex() + "\n")
    (folder / "client_request.hex").write_text(msgpack.packb(CLIENT_REQUEST, use_bin_type=True).hex() + "\n")


main()
