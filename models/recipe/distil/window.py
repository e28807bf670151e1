"""Which part of a document a row of training has. Standard library only."""

ROOM = 96  # tokens of a row beyond the longest answer: for the end of its prompt


def length_of(answer_tokens, context):
    """Tokens of the longest row. The draft has positions for `context` tokens."""
    return min(answer_tokens + ROOM, context)


def window(begin, n_prompt, end, length):
    """(begin, tokens of the prompt) of the row: of a document that is longer than a row its end, so that the answer is learnt after the
    last tokens of its prompt. One of these is there at least, as the answer's first token is learnt after it."""
    cut = max(0, min(end - begin - length, n_prompt - 1))
    return begin + cut, n_prompt - cut
