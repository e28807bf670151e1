// The listing of SamplingParams for the wire: the struct lives in base, where nothing knows of
// fields.
#pragma once

#include <string_view>

#include "common/base/sampling_params.h"

namespace foretoken::wire {

// Where a type's listing is found: in the type itself, or here for types of other rooms.
template <class T>
struct Listing {};

template <class T>
requires requires { T::kName; }
struct Listing<T> {
  static constexpr std::string_view kName = T::kName;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    T::fields(m, v);
  }
};

template <>
struct Listing<SamplingParams> {
  static constexpr std::string_view kName = "SamplingParams";
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    v(1, "temperature", m.temperature, "0 = greedy");
    v(2, "top_k", m.top_k, "0 = off");
    v(3, "top_p", m.top_p, "1 = off");
    v(4, "min_p", m.min_p, "0 = off");
    v(5, "repetition_penalty", m.repetition_penalty, "1 = off");
    v(6, "presence_penalty", m.presence_penalty, "0 = off");
    v(7, "frequency_penalty", m.frequency_penalty, "0 = off");
    v(8, "logit_bias", m.logit_bias, "pairs of token id and what is added to its logit");
    v(9, "bad_words", m.bad_words, "token sequences that must not appear");
    v(10, "seed", m.seed, "key of the noise");
    v(11, "choice", m.choice, "index among parallel answers");
    v(12, "max_tokens", m.max_tokens, "longest answer");
    v(13, "min_tokens", m.min_tokens, "end and stop tokens are masked before");
    v(14, "stop_token_ids", m.stop_token_ids, "ids that end the answer, besides the model's own");
    v(15, "ignore_eos", m.ignore_eos, "the model's end tokens do not end the answer");
    v(16, "n_logprobs", m.n_logprobs, "-1 none, 0 the chosen token's, n also the n likeliest");
  }
};

}  // namespace foretoken::wire
