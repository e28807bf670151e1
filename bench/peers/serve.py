"""The loop of a peer written in Python: a JSON line asks, a JSON line answers, as in llama/llama_peer.cc. `do` names a method of the peer,
the other keys are its arguments."""

import json
import os
import sys


def serve(peer):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(peer, request.pop("do"))(**request)
        except Exception as error:  # the driver says it and goes on
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
