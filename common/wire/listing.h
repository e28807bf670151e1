// Where the wire finds a type's listing: in the type itself. SamplingParams lists limits too, which
// a record on the wire does not need.
#pragma once

#include <string_view>

#include "common/base/sampling_params.h"

namespace foretoken::wire {

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
  static constexpr std::string_view kName = SamplingParams::kName;
  template <class Self, class Visitor>
  static void fields(Self& m, Visitor&& v) {
    SamplingParams::fields(
        m, [&](int number, const char* key, auto& member, const Limit&, const char* sentence,
               int since_minor = 0) { v(number, key, member, sentence, since_minor); });
  }
};

}  // namespace foretoken::wire
