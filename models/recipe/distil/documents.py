"""The collected text as micro-batches: what ids.py wrote, mapped into memory."""
import numpy as np
import torch

from distil.window import window


class Documents:
    def __init__(self, folder, seed, length):
        load = lambda name: np.load(folder / f"{name}.npy", mmap_mode="r")  # noqa: E731
        self.tokens, self.labels, self.top_rows, self.top_logprobs = load("tokens"), load("labels"), load("top_rows"), load("top_logprobs")
        self.documents, self.seed, self.length, self.orders = np.load(folder / "documents.npy"), seed, length, {}

    def __len__(self):
        return len(self.documents) - 1

    def order(self, time_round):
        if time_round not in self.orders:
            self.orders = {time_round: np.random.default_rng((self.seed, time_round)).permutation(len(self))}
        return self.orders[time_round]

    def batch(self, first, n):
        """Documents first .. first + n of all rounds: ids [n, longest], places of answers in it, and what is wanted there."""
        chosen = [self.order(i // len(self))[i % len(self)] for i in range(first, first + n)]
        rows, places, wanted = [], [], []
        for row, d in enumerate(chosen):
            begin, n_prompt, answer = self.documents[d]
            end = self.documents[d + 1][0]
            begin, n_prompt = window(begin, n_prompt, end, self.length)
            ids = self.tokens[begin:min(end, begin + self.length)]
            rows.append(ids)
            n_answer = len(ids) - n_prompt
            places.append((row, n_prompt - 1, n_answer))
            wanted.append(np.arange(answer, answer + n_answer))
        longest = max(map(len, rows))
        ids = np.zeros((n, longest), np.int64)
        for row, some in enumerate(rows):
            ids[row, :len(some)] = some
        at = np.concatenate([row * longest + np.arange(begin, begin + count) for row, begin, count in places])
        wanted = np.concatenate(wanted)
        return (torch.from_numpy(ids), torch.from_numpy(at), torch.from_numpy(self.labels[wanted].astype(np.int64)),
                torch.from_numpy(self.top_rows[wanted].astype(np.int64)), torch.from_numpy(self.top_logprobs[wanted].astype(np.float32)))
