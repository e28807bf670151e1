// Fills any message over its listing: by the rule of make_golden.py, or at random.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/wire/body_fields.h"

namespace foretoken::wire {

// How many values each closed list had when the golden bytes were made: a list that grows changes
// no byte of messages that exist.
constexpr int n_values(Role) { return 6; }
constexpr int n_values(PromptKind) { return 3; }
constexpr int n_values(Activity) { return 3; }
constexpr int n_values(DraftSource) { return 2; }
constexpr int n_values(ProposerKind) { return 5; }
constexpr int n_values(AcceptanceRule) { return 2; }
constexpr int n_values(FinishReason) { return 4; }
constexpr int n_values(CloseReason) { return 6; }
constexpr int n_values(NeedReason) { return 5; }
constexpr int n_values(ToolChoice) { return 3; }

class GoldenFiller {
 public:
  template <Record T>
  void value(T& record, int = 0) {
    Listing<T>::fields(record, [&](int number, const char*, auto& field, const char*, int = 0) {
      value(field, number);
    });
  }
  void value(bool& b, int k) { b = k % 2 == 1; }
  void value(std::string& text, int k) { text = "s" + std::to_string(k) + "é"; }
  void value(float& f, int k) { f = static_cast<float>(k) / 4; }
  template <std::integral T>
  void value(T& number, int k) {
    if constexpr (std::is_signed_v<T>)
      number = static_cast<T>(k - 3);
    else
      number = static_cast<T>(std::min<std::uint64_t>(1000 * static_cast<std::uint64_t>(k) + 7,
                                                      std::numeric_limits<T>::max()));
  }
  void value(ErrorCode& code, int k) { code = static_cast<ErrorCode>(k); }
  template <class T>
  requires std::is_enum_v<T>
  void value(T& e, int k) { e = static_cast<T>(k % n_values(T{})); }
  template <class Tag, class Integer>
  void value(Id<Tag, Integer>& id, int k) {
    value(id.value, k);
  }
  void value(std::vector<TokenId>& list, int k) { list = {k, 70000 + k}; }
  void value(std::vector<std::uint8_t>& list, int) { list = {0, 1, 255}; }
  void value(std::vector<std::uint16_t>& list, int k) {
    list = {65535, static_cast<std::uint16_t>(k)};
  }
  void value(std::vector<std::uint32_t>& list, int k) { list = {static_cast<std::uint32_t>(k)}; }
  void value(std::vector<float>& list, int k) { list = {-static_cast<float>(k) / 4}; }
  void value(std::vector<std::string>& list, int k) { list = {"a", std::to_string(k)}; }
  void value(std::vector<std::vector<TokenId>>& list, int k) { list = {{k}, {k + 1, k + 2}}; }
  void value(std::vector<std::pair<TokenId, float>>& list, int k) {
    list = {{k, -static_cast<float>(k) / 2}};
  }
  template <Record T>
  void value(std::vector<T>& list, int) {
    list.resize(1);
    value(list[0]);
  }
};

class RandomFiller {
 public:
  explicit RandomFiller(std::uint64_t seed) : random_(seed) {}

  template <Record T>
  void value(T& record) {
    Listing<T>::fields(record,
                       [&](int, const char*, auto& field, const char*, int = 0) { value(field); });
  }
  void value(bool& b) { b = below(2) == 1; }
  void value(std::string& text) {
    text.resize(pick({0, 1, 31, 32, 255, 256, 300}));
    for (char& c : text) c = static_cast<char>(below(256));
  }
  void value(float& f) { f = std::uniform_real_distribution<float>(-100, 100)(random_); }
  template <std::integral T>
  void value(T& number) {
    // Around every boundary of msgpack's integer forms.
    const std::uint64_t bits = random_() >> below(64);
    number = below(4) == 0   ? std::numeric_limits<T>::max()
             : below(4) == 0 ? std::numeric_limits<T>::min()
                             : static_cast<T>(bits);
  }
  void value(ErrorCode& code) { code = kErrorCodeNames[below(kErrorCodeNames.size())].first; }
  template <class T>
  requires std::is_enum_v<T>
  void value(T& e) { e = static_cast<T>(below(enum_count(T{}))); }
  template <class Tag, class Integer>
  void value(Id<Tag, Integer>& id) {
    value(id.value);
  }
  void value(std::vector<TokenId>& list) {
    list.resize(pick({0, 1, 5, 70}));
    for (TokenId& id : list) id = static_cast<TokenId>(below(1u << 31));
  }
  void value(std::pair<TokenId, float>& pair) {
    pair.first = static_cast<TokenId>(below(1u << 31));
    value(pair.second);
  }
  template <class T>
  void value(std::vector<T>& list) {
    list.resize(pick({0, 1, 3, 17}));
    for (T& element : list) value(element);
  }
  std::uint64_t below(std::uint64_t limit) {
    return std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random_);
  }

 private:
  std::size_t pick(std::initializer_list<std::size_t> sizes) {
    return sizes.begin()[below(sizes.size())];
  }
  std::mt19937_64 random_;
};

// Calls `use` with a default message of every type.
template <class Use, std::size_t... I>
void each_message(Use&& use, std::index_sequence<I...>) {
  (use(std::variant_alternative_t<I, Message>{}), ...);
}
template <class Use>
void each_message(Use&& use) {
  each_message(std::forward<Use>(use), std::make_index_sequence<std::variant_size_v<Message>>{});
}

inline std::vector<Message> random_messages(std::uint64_t seed) {
  std::vector<Message> all;
  RandomFiller filler(seed);
  each_message([&](auto message) {
    filler.value(message);
    all.emplace_back(std::move(message));
  });
  return all;
}

}  // namespace foretoken::wire
