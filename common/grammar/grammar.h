// A constraint on an answer's text, compiled: what a request gives as JSON Schema, regular
// expression or GBNF, as a graph of nodes. An edge takes one byte of a set; a call goes through
// another rule and comes back; nothing leads on without a byte but calls. From every node an end
// can be reached. Immutable, for any number of threads; knows bytes, no tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/base/sampling_params.h"
#include "common/grammar/expressions.h"

namespace foretoken {

enum class GrammarKind : std::uint8_t { kJsonSchema, kRegex, kGbnf };

class Grammar {
 public:
  static constexpr std::size_t kMaxTextBytes = kMaxConstraintBytes;
  static constexpr std::size_t kMaxNodes = 200'000;  // and so many expressions of a sequence
  static constexpr std::size_t kMaxEdges = 1'000'000;
  static constexpr std::uint32_t kMaxNesting = 1'000;  // expressions within expressions
  static constexpr std::uint32_t kMaxDepth = 256;      // calls under way

  // Refused: text beyond the limits, what is not supported, a grammar that is too large or
  // left-recursive, or that allows no text or only the empty one.
  static Result<std::shared_ptr<const Grammar>> read(GrammarKind kind, std::string_view text);
  static Result<std::shared_ptr<const Grammar>> compile(const Expressions& expressions,
                                                        ExpressionId start);

  static constexpr std::uint32_t kReturnAtOnce = 0xFFFFFFFFu;

  struct Edge {
    std::uint32_t set = 0;   // in `sets`
    std::uint32_t next = 0;  // a node
  };
  struct Call {
    std::uint32_t rule = 0;
    std::uint32_t next =
        0;  // the node to come back to; kReturnAtOnce: the caller's rule ends there
  };
  struct Node {
    std::uint32_t first_edge = 0;  // up to the next node's
    std::uint32_t first_call = 0;
    std::uint32_t needs = 0;  // calls under way at once on the way to the rule's end, at least
    bool may_end = false;     // the rule may end here
  };
  struct Rule {
    std::uint32_t start = 0;  // a node
    std::uint32_t place = 0;  // above those of all rules that can call it before any byte
    std::uint32_t needs = 0;  // as a node's, with one byte at least
    bool may_be_empty = false;
  };

  std::span<const Edge> edges(std::uint32_t node) const {
    return {edges_.data() + nodes_[node].first_edge, edges_.data() + nodes_[node + 1].first_edge};
  }
  // Calls come back with at least one byte: what a rule that may be empty allows is in the node.
  std::span<const Call> calls(std::uint32_t node) const {
    return {calls_.data() + nodes_[node].first_call, calls_.data() + nodes_[node + 1].first_call};
  }
  const Node& node(std::uint32_t node) const { return nodes_[node]; }
  const Rule& rule(std::uint32_t rule) const { return rules_[rule]; }
  std::size_t n_rules() const { return rules_.size(); }
  std::size_t n_nodes() const { return nodes_.size() - 1; }
  const Rule& whole() const { return rules_.front(); }

  // Bytes that every set treats alike are a class.
  std::uint32_t byte_class(unsigned char byte) const { return class_of_[byte]; }
  std::uint32_t n_classes() const { return n_classes_; }
  std::size_t size_bytes() const {
    return nodes_.size() * sizeof(Node) + edges_.size() * sizeof(Edge) +
           calls_.size() * sizeof(Call) + rules_.size() * sizeof(Rule) +
           sets_.size() * sizeof(ByteSet);
  }
  bool set_has_class(std::uint32_t set, std::uint32_t byte_class) const {
    return sets_[set][byte_class];
  }

 private:
  friend class GrammarCompiler;
  Grammar() = default;

  std::vector<Node> nodes_;  // and one more: the end of edges and calls
  std::vector<Edge> edges_;
  std::vector<Call> calls_;
  std::vector<Rule> rules_;
  std::vector<ByteSet> sets_;  // of classes
  std::array<std::uint8_t, 256> class_of_{};
  std::uint32_t n_classes_ = 1;
};

}  // namespace foretoken
