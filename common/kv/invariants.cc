#include "common/kv/invariants.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

namespace foretoken {
namespace {

// One pass over a snapshot; each method is one family of rules.
class Validator {
 public:
  Validator(const KvSnapshot& snapshot, const KvTexts& texts)
      : snapshot_(snapshot), texts_(texts) {}

  std::vector<std::string> run() {
    if (snapshot_.block_tokens <= 0) {
      say("block_tokens is " + std::to_string(snapshot_.block_tokens));
      return found_;
    }
    check_places();
    check_sequences();
    check_holders();
    check_shared_contents();
    check_writable();
    check_prefixes();
    return found_;
  }

 private:
  void say(std::string sentence) { found_.push_back(std::move(sentence)); }
  static std::string name(const KvSnapshot::SequenceState& sequence) {
    return "sequence " + std::to_string(sequence.seq.value);
  }
  static std::string name(std::int32_t block) { return "block " + std::to_string(block); }
  bool exists(std::int32_t block) const {
    return block >= 0 && static_cast<std::size_t>(block) < snapshot_.blocks.size();
  }
  const KvSnapshot::BlockState& state(std::int32_t block) const {
    return snapshot_.blocks[static_cast<std::size_t>(block)];
  }
  std::span<const TokenId> text(const KvSnapshot::SequenceState& sequence) const {
    const auto found = texts_.find(sequence.seq);
    return found == texts_.end() ? std::span<const TokenId>{} : found->second;
  }
  std::size_t block_tokens() const { return static_cast<std::size_t>(snapshot_.block_tokens); }

  // Every block is in exactly one place, and its state says the same.
  void check_places() {
    std::map<std::int32_t, int> unheld;
    for (const std::int32_t block : snapshot_.free_list) {
      ++unheld[block];
      if (!exists(block)) {
        say(name(block) + " is on the free list and does not exist");
      } else if (state(block).n_holders != 0 || state(block).is_kept) {
        say(name(block) + " is on the free list but held or kept");
      }
    }
    for (const std::int32_t block : snapshot_.cached) {
      ++unheld[block];
      if (!exists(block)) {
        say(name(block) + " is cached and does not exist");
      } else if (state(block).n_holders != 0 || !state(block).is_kept) {
        say(name(block) + " is cached but held, or not marked to be kept");
      }
    }
    for (std::size_t i = 0; i < snapshot_.blocks.size(); ++i) {
      const auto block = static_cast<std::int32_t>(i);
      const int places =
          (unheld.contains(block) ? unheld[block] : 0) + (state(block).n_holders > 0 ? 1 : 0);
      if (places == 0)
        say(name(block) + " leaked: it has no holder and is neither free nor cached");
      if (places > 1) say(name(block) + " is in " + std::to_string(places) + " places");
    }
  }

  void check_sequences() {
    std::set<SeqId> seen;
    for (const auto& sequence : snapshot_.sequences) {
      if (!seen.insert(sequence.seq).second) say(name(sequence) + " is listed twice");
      if (texts_.contains(sequence.seq) && text(sequence).size() != sequence.length)
        say(name(sequence) + " has length " + std::to_string(sequence.length) + " and " +
            std::to_string(text(sequence).size()) + " tokens");
      const std::size_t positions = std::size_t{sequence.length} + sequence.reserved;
      const std::size_t expected = (positions + block_tokens() - 1) / block_tokens();
      if (sequence.blocks.size() != expected)
        say(name(sequence) + " has " + std::to_string(sequence.blocks.size()) + " blocks for " +
            std::to_string(positions) + " positions instead of " + std::to_string(expected));
      const std::set<std::int32_t> distinct(sequence.blocks.begin(), sequence.blocks.end());
      if (distinct.size() != sequence.blocks.size())
        say(name(sequence) + " has a block twice in its table");
      if (sequence.copy_source >= 0 && sequence.reserved == 0)
        say(name(sequence) + " copies a block without a reservation");
    }
  }

  void check_holders() {
    std::map<std::int32_t, std::int32_t> holders;
    for (const auto& sequence : snapshot_.sequences) {
      for (const std::int32_t block : sequence.blocks) ++holders[block];
      if (sequence.copy_source >= 0) ++holders[sequence.copy_source];
    }
    for (const auto& [block, count] : holders)
      if (!exists(block)) say(name(block) + " is in a table and does not exist");
    for (std::size_t i = 0; i < snapshot_.blocks.size(); ++i) {
      const auto block = static_cast<std::int32_t>(i);
      const std::int32_t expected = holders.contains(block) ? holders[block] : 0;
      if (state(block).n_holders != expected)
        say(name(block) + " counts " + std::to_string(state(block).n_holders) +
            " holders, tables show " + std::to_string(expected));
    }
  }

  // Two sequences share a block only at the same place after the same tokens.
  void check_shared_contents() {
    struct Use {
      const KvSnapshot::SequenceState* sequence;
      std::size_t at;
    };
    std::map<std::int32_t, Use> first_use;
    for (const auto& sequence : snapshot_.sequences) {
      for (std::size_t at = 0; at < sequence.blocks.size(); ++at) {
        const auto [use, is_first] = first_use.try_emplace(sequence.blocks[at], Use{&sequence, at});
        if (is_first || use->second.sequence == &sequence) continue;
        const auto& other = *use->second.sequence;
        const std::size_t n =
            std::min({(at + 1) * block_tokens(), text(sequence).size(), text(other).size()});
        if (use->second.at != at ||
            !std::ranges::equal(text(sequence).first(n), text(other).first(n)))
          say(name(sequence.blocks[at]) + " is shared by " + name(other) + " and " +
              name(sequence) + " after different tokens");
      }
    }
  }

  // Reserved positions are about to be written: their blocks have no other holder and are not
  // published.
  void check_writable() {
    for (const auto& sequence : snapshot_.sequences) {
      if (sequence.reserved == 0) continue;
      for (std::size_t at = sequence.length / block_tokens(); at < sequence.blocks.size(); ++at) {
        const std::int32_t block = sequence.blocks[at];
        if (exists(block) && (state(block).n_holders != 1 || state(block).is_kept))
          say(name(sequence) + " may write to " + name(block) + ", which is shared or published");
      }
    }
  }

  void check_prefixes() {
    std::map<std::int32_t, const PrefixEntry*> by_block;
    std::set<std::uint64_t> serials;
    for (const PrefixEntry& entry : snapshot_.prefixes) {
      if (!by_block.emplace(entry.block, &entry).second)
        say(name(entry.block) + " is published twice");
      if (!serials.insert(entry.link.serial).second)
        say("serial " + std::to_string(entry.link.serial) + " is used twice");
      if (entry.parent_serial >= entry.link.serial)
        say(name(entry.block) + " is older than its parent");
      if (entry.tokens.size() != block_tokens())
        say(name(entry.block) + " is published but not full");
      if (!exists(entry.block) || !state(entry.block).is_kept)
        say(name(entry.block) + " is published but not kept");
    }
    for (std::size_t i = 0; i < snapshot_.blocks.size(); ++i)
      if (state(static_cast<std::int32_t>(i)).is_kept &&
          !by_block.contains(static_cast<std::int32_t>(i)))
        say(name(static_cast<std::int32_t>(i)) + " is kept but not published");
    for (const auto& sequence : snapshot_.sequences) check_published_contents(sequence, by_block);
  }

  void check_published_contents(const KvSnapshot::SequenceState& sequence,
                                const std::map<std::int32_t, const PrefixEntry*>& by_block) {
    for (std::size_t at = 0; at < sequence.blocks.size(); ++at) {
      const auto entry = by_block.find(sequence.blocks[at]);
      const std::size_t begin = at * block_tokens();
      if (entry == by_block.end() || begin >= text(sequence).size()) continue;
      const std::span<const TokenId> published = entry->second->tokens;
      const std::size_t n =
          std::min({block_tokens(), text(sequence).size() - begin, published.size()});
      if (!std::ranges::equal(published.first(n), text(sequence).subspan(begin, n)))
        say(name(sequence.blocks[at]) + " is published with other tokens than " + name(sequence) +
            " has there");
    }
  }

  const KvSnapshot& snapshot_;
  const KvTexts& texts_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> kv_violations(const KvSnapshot& snapshot, const KvTexts& texts) {
  return Validator(snapshot, texts).run();
}

}  // namespace foretoken
