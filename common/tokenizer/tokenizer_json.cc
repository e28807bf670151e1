#include "common/tokenizer/tokenizer_json.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>
#include <unordered_set>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/tokenizer/hash.h"
#include "common/tokenizer/limits.h"

namespace foretoken {
namespace {

namespace limits = tokenizer_limits;
using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr std::size_t kMaxTreeNodes = 2u << 20;

std::string_view kind_name(element value) {
  switch (value.type()) {
    case element_type::NULL_VALUE:
      return "null";
    case element_type::BOOL:
      return "a boolean";
    case element_type::INT64:
    case element_type::UINT64:
      return "an integer";
    case element_type::DOUBLE:
      return "a number";
    case element_type::STRING:
      return "a string";
    case element_type::ARRAY:
      return "an array";
    case element_type::OBJECT:
      return "an object";
  }
  return "nothing";
}

std::string_view text_of(element value) {
  std::string_view text;
  return value.get_string().get(text) == simdjson::SUCCESS ? text : std::string_view();
}

// By value: a range-for over a member of a temporary would dangle. The kind must be right.
simdjson::dom::array items_of(element value) {
  simdjson::dom::array items;
  const auto code = value.get_array().get(items);
  FORETOKEN_CHECK(code == simdjson::SUCCESS);
  return items;
}

simdjson::dom::object members_of(element value) {
  simdjson::dom::object members;
  const auto code = value.get_object().get(members);
  FORETOKEN_CHECK(code == simdjson::SUCCESS);
  return members;
}

// Objects hash as a sum over their members, so that order does not matter.
std::uint64_t hash_of(element value) {
  StableHash hash;
  hash.add(static_cast<std::uint64_t>(value.type()));
  switch (value.type()) {
    case element_type::BOOL:
      return hash.add(std::uint64_t{value.get_bool().value_unsafe()}).value();
    case element_type::INT64:
      return hash.add(static_cast<std::uint64_t>(value.get_int64().value_unsafe())).value();
    case element_type::UINT64:
      return hash.add(value.get_uint64().value_unsafe()).value();
    case element_type::DOUBLE: {
      const double number = value.get_double().value_unsafe();
      std::uint64_t bits = 0;
      static_assert(sizeof bits == sizeof number);
      std::memcpy(&bits, &number, sizeof bits);
      return hash.add(bits).value();
    }
    case element_type::STRING:
      return hash.add(text_of(value)).value();
    case element_type::ARRAY:
      for (const element item : items_of(value)) hash.add(hash_of(item));
      return hash.value();
    case element_type::OBJECT: {
      std::uint64_t sum = 0;
      for (const auto& [name, item] : members_of(value))
        sum += StableHash().add(name).add(hash_of(item)).value();
      return hash.add(sum).value();
    }
    case element_type::NULL_VALUE:
      break;
  }
  return hash.value();
}

// simdjson element -> JsonTree, with a budget of nodes.
class TreeBuilder {
 public:
  explicit TreeBuilder(std::string_view file) : file_(file) {}

  Result<JsonTree> build(element value, const std::string& path) {
    if (++n_nodes_ > kMaxTreeNodes)
      return field_error(file_, path, "at most " + std::to_string(kMaxTreeNodes) + " values",
                         "more");
    JsonTree json;
    switch (value.type()) {
      case element_type::NULL_VALUE:
        break;
      case element_type::BOOL:
        json.kind = JsonTree::Kind::kBool;
        json.boolean = value.get_bool().value_unsafe();
        break;
      case element_type::INT64:
        json.kind = JsonTree::Kind::kInteger;
        json.integer = value.get_int64().value_unsafe();
        break;
      case element_type::UINT64:
      case element_type::DOUBLE:
        json.kind = JsonTree::Kind::kNumber;
        json.number = value.get_double().value_unsafe();
        break;
      case element_type::STRING:
        json.kind = JsonTree::Kind::kString;
        json.string = text_of(value);
        break;
      case element_type::ARRAY:
        return build_array(value, path);
      case element_type::OBJECT:
        return build_object(value, path, {});
    }
    return json;
  }

  Result<JsonTree> build_object(element value,
                                const std::string& path,
                                std::span<const std::string_view> left_out) {
    JsonTree json;
    json.kind = JsonTree::Kind::kObject;
    for (const auto& [name, item] : members_of(value)) {
      if (std::find(left_out.begin(), left_out.end(), name) != left_out.end()) continue;
      Result<JsonTree> child =
          build(item, path.empty() ? std::string(name) : path + "." + std::string(name));
      if (!child.ok()) return child;
      json.members.push_back({std::string(name), std::move(*child)});
    }
    if (const std::string* twice = repeated_name(json))
      return field_error(file_, path, "each name once", "\"" + printable(*twice) + "\" twice");
    return json;
  }

 private:
  Result<JsonTree> build_array(element value, const std::string& path) {
    JsonTree json;
    json.kind = JsonTree::Kind::kArray;
    for (const element item : items_of(value)) {
      Result<JsonTree> child = build(item, path + "[" + std::to_string(json.items.size()) + "]");
      if (!child.ok()) return child;
      json.items.push_back(std::move(*child));
    }
    return json;
  }

  static const std::string* repeated_name(const JsonTree& object) {
    std::unordered_set<std::string_view> seen;
    for (const auto& member : object.members)
      if (!seen.insert(member.name).second) return &member.name;
    return nullptr;
  }

  std::string_view file_;
  std::size_t n_nodes_ = 0;
};

Result<void> read_vocab(std::string_view file, element value, TokenizerJson& into) {
  constexpr std::string_view kPath = "model.vocab";
  simdjson::dom::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS)
    return field_error(file, kPath, "an object of token -> id", kind_name(value));
  std::unordered_set<std::string_view> texts;
  std::unordered_set<std::int64_t> ids;
  for (const auto& [text, id_value] : object) {
    const std::string path = std::string(kPath) + "[\"" + printable(text) + "\"]";
    std::int64_t id = 0;
    if (id_value.get_int64().get(id) != simdjson::SUCCESS || !id_value.is_int64())
      return field_error(file, path, "an integer", kind_name(id_value));
    if (id < 0 || id > limits::kMaxTokenId)
      return field_error(file, path, "an id from 0 to " + std::to_string(limits::kMaxTokenId),
                         std::to_string(id));
    if (text.size() > limits::kMaxTokenBytes)
      return field_error(file, path,
                         "a token of at most " + std::to_string(limits::kMaxTokenBytes) + " bytes",
                         std::to_string(text.size()) + " bytes");
    if (!texts.insert(text).second) return field_error(file, path, "each token once", "it twice");
    if (!ids.insert(id).second)
      return field_error(file, path, "an id of its own",
                         "id " + std::to_string(id) + ", which another token has");
    into.vocab.emplace_back(text, static_cast<TokenId>(id));
  }
  if (into.vocab.empty()) return field_error(file, kPath, "at least one token", "none");
  return {};
}

// A merge is "a b" in older files, ["a", "b"] in newer ones.
Result<std::pair<std::string_view, std::string_view>> read_merge(std::string_view file,
                                                                 element value,
                                                                 std::size_t rank) {
  const auto refuse = [&](std::string_view found) {
    return field_error(file, "model.merges[" + std::to_string(rank) + "]",
                       "\"left right\" or [\"left\", \"right\"]", found);
  };
  std::string_view left, right;
  if (value.is_string()) {
    const std::string_view text = text_of(value);
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      return refuse("\"" + printable(text) + "\"");
    left = text.substr(0, space);
    right = text.substr(space + 1);
  } else if (value.is_array()) {
    const simdjson::dom::array pair = items_of(value);
    if (pair.size() != 2) return refuse("an array of " + std::to_string(pair.size()));
    for (const element side : pair) {
      if (!side.is_string()) return refuse("an array of something else");
      (left.data() == nullptr ? left : right) = text_of(side);
    }
  } else {
    return refuse(kind_name(value));
  }
  if (left.empty() || right.empty()) return refuse("an empty side");
  return std::pair{left, right};
}

Result<void> read_merges(std::string_view file, element value, TokenizerJson& into) {
  simdjson::dom::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS)
    return field_error(file, "model.merges", "an array", kind_name(value));
  for (const element item : array) {
    if (into.merges.size() >= limits::kMaxMerges)
      return field_error(file, "model.merges",
                         "at most " + std::to_string(limits::kMaxMerges) + " merges", "more");
    auto merge = read_merge(file, item, into.merges.size());
    if (!merge.ok()) return merge.error();
    into.merges.emplace_back(merge->first, merge->second);
  }
  return {};
}

Result<void> read_model(std::string_view file, element model, TokenizerJson& into) {
  // Other kinds have vocabularies of another shape: their name says more than the shape.
  for (const auto& [name, value] : members_of(model))
    if (name == "type" && value.is_string() && text_of(value) != "BPE")
      return field_error(file, "model.type",
                         "BPE (WordPiece, Unigram and WordLevel are not supported)",
                         "\"" + printable(text_of(value)) + "\"", ErrorCode::kUnsupportedModel);
  for (const auto& [name, value] : members_of(model)) {
    Result<void> read;
    if (name == "vocab") {
      if (!into.vocab.empty())
        return field_error(file, "model", "each name once", "\"vocab\" twice");
      read = read_vocab(file, value, into);
    } else if (name == "merges") {
      if (!into.merges.empty())
        return field_error(file, "model", "each name once", "\"merges\" twice");
      read = read_merges(file, value, into);
    }
    if (!read.ok()) return read;
  }
  return {};
}

// Independent of the order of fields, and of how merges are spelled.
std::uint64_t hash_of_model(element model,
                            const std::vector<std::pair<std::string, std::string>>& merges) {
  std::uint64_t sum = 0;
  for (const auto& [name, value] : members_of(model))
    if (name != "merges") sum += StableHash().add(name).add(hash_of(value)).value();
  StableHash hash;
  for (const auto& [left, right] : merges) hash.add(left).add(right);
  return sum + hash.value();
}

struct Parsed {
  simdjson::dom::parser parser;  // owns what root points to
  element root;
};

Result<void> parse(std::string_view bytes, std::string_view file, Parsed& into) {
  const auto no_memory = [&] {
    return Error{ErrorCode::kOutOfMemory, std::string(file) + ": no memory to parse " +
                                              std::to_string(bytes.size()) + " bytes of JSON"};
  };
  if (into.parser.allocate(bytes.size() + 1, limits::kMaxJsonDepth) != simdjson::SUCCESS)
    return no_memory();
  const auto code = into.parser.parse(bytes.data(), bytes.size()).get(into.root);
  if (code == simdjson::DEPTH_ERROR)
    return field_error(file, "", "nesting of at most " + std::to_string(limits::kMaxJsonDepth),
                       "more");
  if (code == simdjson::MEMALLOC) return no_memory();
  if (code != simdjson::SUCCESS)
    return field_error(file, "", "valid JSON", simdjson::error_message(code));
  if (!into.root.is_object()) return field_error(file, "", "an object", kind_name(into.root));
  return {};
}

std::string name_of(const std::filesystem::path& path) { return path.filename().string(); }

}  // namespace

Result<TokenizerJson> parse_tokenizer_json(std::string_view bytes, std::string_view file) {
  Parsed parsed;
  if (Result<void> read = parse(bytes, file, parsed); !read.ok()) return read.error();
  TokenizerJson result;
  std::uint64_t sum = 0;
  JsonTree model_tree;
  bool has_model = false;
  TreeBuilder builder(file);
  for (const auto& [name, value] : members_of(parsed.root)) {
    if (name == "model" && value.is_object()) {
      if (has_model) return field_error(file, "", "each name once", "\"model\" twice");
      has_model = true;
      if (Result<void> read = read_model(file, value, result); !read.ok()) return read.error();
      constexpr std::string_view kLarge[] = {"vocab", "merges"};
      Result<JsonTree> rest = builder.build_object(value, "model", kLarge);
      if (!rest.ok()) return rest.error();
      model_tree = std::move(*rest);
      sum += hash_of_model(value, result.merges);
    } else if (name != "version" && name != "truncation" && name != "padding") {
      sum += StableHash()
                 .add(name)
                 .add(hash_of(value))
                 .value();  // those three do not touch the ids we produce
    }
  }
  constexpr std::string_view kModel[] = {"model"};
  Result<JsonTree> tree =
      builder.build_object(parsed.root, "", has_model ? std::span(kModel) : std::span(kModel, 0));
  if (!tree.ok()) return tree.error();
  result.tree = std::move(*tree);
  if (has_model) result.tree.members.push_back({"model", std::move(model_tree)});
  result.canonical_hash = mix64(sum);
  return result;
}

Result<TokenizerJson> read_tokenizer_json(const std::filesystem::path& path) {
  Result<std::string> bytes = read_text_file(path, limits::kMaxFileBytes);
  if (!bytes.ok()) return bytes.error();
  return parse_tokenizer_json(*bytes, name_of(path));
}

Result<JsonTree> read_json_file(const std::filesystem::path& path) {
  Result<std::string> bytes = read_text_file(path, limits::kMaxSideFileBytes);
  if (!bytes.ok()) return bytes.error();
  Parsed parsed;
  const std::string file = name_of(path);
  if (Result<void> read = parse(*bytes, file, parsed); !read.ok()) return read.error();
  return TreeBuilder(file).build(parsed.root, "");
}

}  // namespace foretoken
