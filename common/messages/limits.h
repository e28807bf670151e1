// The largest of everything that is read from outside, with the reason for each. A size beyond its
// limit is refused before a byte is reserved for it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace foretoken::wire {

inline constexpr std::size_t kHeaderBytes = 56;  // fixed for major version 1

// A million tokens of 4 bytes: the longest context any supported family has, in one ATTACH or OPEN.
inline constexpr std::size_t kMaxInternalPartBytes = std::size_t{4} << 20;
// A prompt of a million bytes is beyond every context of this release; larger requests are mistakes
// or attacks.
inline constexpr std::size_t kMaxClientPartBytes = std::size_t{1} << 20;

// An answer to a client is larger than a message between services: a whole one has up to 20
// log-probabilities for each token. As much as the router keeps of the end of an answer for a
// client that does not read (common/runtime/outbox.h).
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{32} << 20;

// Deepest legal body is record > params > bad words > ids; twice that leaves room to grow.
inline constexpr int kMaxDepth = 8;
// Elements of a msgpack array: records of a batch, strings of a list.
inline constexpr std::size_t kMaxArray = 65536;
inline constexpr std::size_t kMaxMap = 64;  // keys of a client's map: twice those we know
inline constexpr std::size_t kMaxStringBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxBinBytes = kMaxInternalPartBytes;

// A target runs so many sequences beyond max_sequences of its Hello: places for flows (tenants or
// connections) that have few there, so that one with many does not make them wait for an end.
constexpr std::uint32_t kept_places(std::uint32_t max_sequences) {
  return max_sequences < 8 ? 1 : max_sequences / 8;
}

// One client request. Those of sampling are in base/sampling_params.h.
inline constexpr std::size_t kMaxChatMessages = 4096;
inline constexpr std::size_t kMaxTokenIds = std::size_t{1}
                                            << 20;  // the longest context of any supported family
// Prompt, prediction and bad words of one request in tokens: the rest of the part they travel in
// holds the parameters.
inline constexpr std::size_t kMaxRequestTokens = 1'000'000;
// Tokens to be turned into text at once: at four bytes each, what one string holds.
inline constexpr std::size_t kMaxDetokenizeIds = kMaxStringBytes / 4;
// Tokens whose bytes one DECODE asks for: with 20 likeliest each, those of 3,000 tokens at once.
inline constexpr std::size_t kMaxBytesOf = std::size_t{1} << 16;
inline constexpr std::size_t kMaxNameBytes = 128;  // model, tenant, proposer: names people type
// Log-probabilities of a prompt come in one answer: of its tokens, with so many likeliest ones of
// each, as many as 4 MiB hold: numbers, keys, and short texts and bytes of tokens.
constexpr std::size_t max_prompt_with_logprobs(std::size_t n_likeliest) {
  return (std::size_t{4} << 20) / (128 + 32 * n_likeliest);
}
inline constexpr std::uint32_t kMaxTimeoutMs = 3'600'000;  // an hour: longer is a leak with a date
// Several answers to a prompt are several requests: each has a choice of its own, and its own id.
inline constexpr std::uint32_t kMaxAnswersPerRequest = 1;

}  // namespace foretoken::wire
