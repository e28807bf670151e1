// Several sources of proposals as one value: those that serve a sequence, or that say the same
// token. Its bits are on the wire: bit k is the proposer of number k. Pure.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "common/base/vocabulary.h"

namespace foretoken {

class ProposerSet {
 public:
  constexpr ProposerSet() = default;
  constexpr ProposerSet(ProposerKind only)
      : bits_(bit(only)) {}  // NOLINT(google-explicit-constructor)
  constexpr ProposerSet(std::initializer_list<ProposerKind> kinds) {
    for (const ProposerKind kind : kinds) add(kind);
  }
  // Bits of proposers that this version does not know are left out.
  static constexpr ProposerSet of_bits(std::uint32_t bits) {
    ProposerSet set;
    set.bits_ = static_cast<std::uint8_t>(bits & ((1u << kProposerKinds) - 1));
    return set;
  }

  static constexpr ProposerSet all() { return of_bits(~0u); }

  constexpr std::uint32_t bits() const { return bits_; }
  constexpr bool has_any_of(ProposerSet others) const { return (bits_ & others.bits_) != 0; }
  constexpr bool contains(ProposerKind kind) const { return (bits_ & bit(kind)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr int size() const { return std::popcount(bits_); }
  constexpr void add(ProposerSet others) {
    bits_ = static_cast<std::uint8_t>(bits_ | others.bits_);
  }
  constexpr void remove(ProposerKind kind) {
    bits_ = static_cast<std::uint8_t>(bits_ & ~bit(kind));
  }
  constexpr bool operator==(const ProposerSet&) const = default;
  // Without kDefault and kNone, which only requests name.
  constexpr ProposerSet sources() const {
    ProposerSet set = *this;
    set.remove(ProposerKind::kDefault);
    set.remove(ProposerKind::kNone);
    return set;
  }

  // Calls visit(kind) for each of them, in the order of their numbers.
  template <class Visit>
  constexpr void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < kProposerKinds; ++i)
      if (const auto kind = static_cast<ProposerKind>(i); contains(kind)) visit(kind);
  }

 private:
  static constexpr std::uint8_t bit(ProposerKind kind) {
    return static_cast<std::uint8_t>(1u << static_cast<unsigned>(kind));
  }
  std::uint8_t bits_ = 0;
};
static_assert(kProposerKinds <= 8, "a bit for each");

// {"draft", "ngram"}
inline std::vector<std::string> list_of(ProposerSet set) {
  std::vector<std::string> names;
  set.for_each([&](ProposerKind kind) { names.emplace_back(name_of(kind)); });
  return names;
}

// "draft+ngram"
inline std::string names_in(ProposerSet set) {
  std::string names;
  for (const auto& name : list_of(set)) names += (names.empty() ? "" : "+") + name;
  return names;
}

}  // namespace foretoken
