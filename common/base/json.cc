#include "common/base/json.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <unordered_set>
#include <utility>
#include <vector>

namespace foretoken {
namespace {

// Builds the tree from parse events, because only events show a second key of the same name before
// it overwrites the first, and only events can stop before a hostile document has grown.
class StrictBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit StrictBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(Json(nullptr)); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(std::int64_t value) override { return add(Json(value)); }
  bool number_unsigned(std::uint64_t value) override { return add(Json(value)); }
  bool number_float(double value, const std::string&) override {
    if (!std::isfinite(value)) return refuse("a number is out of range");
    return add(Json(value));
  }
  bool string(std::string& value) override { return add(Json(std::move(value))); }
  bool binary(Json::binary_t&) override { return refuse("binary values are not JSON"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    Level& level = open_.back();
    if (level.value->contains(name))
      return refuse("key \"" + shortened(name) + "\" appears twice in one object");
    if (level.value->size() >= limits_.max_keys)
      return refuse("an object of more than " + std::to_string(limits_.max_keys) + " keys");
    level.key = name;
    return true;
  }

  bool parse_error(std::size_t position,
                   const std::string&,
                   const nlohmann::detail::exception& error) override {
    // nlohmann's text reads "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    std::string text = error.what();
    if (const auto end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
    return refuse(text + " (byte " + std::to_string(position) + ")");
  }

  Json& root() { return root_; }
  const std::string& problem() const { return problem_; }

 private:
  struct Level {
    Json* value;
    std::string key;
  };

  static std::string shortened(const std::string& name) {
    return name.size() <= 64 ? name : name.substr(0, 64) + "…";
  }

  bool refuse(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }

  // Puts a value where the document is and says where it went; null if a limit is reached.
  Json* place(Json value) {
    if (++n_nodes_ > limits_.max_nodes) {
      refuse("more than " + std::to_string(limits_.max_nodes) + " values");
      return nullptr;
    }
    if (open_.empty()) return &(root_ = std::move(value));
    Level& level = open_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    return &((*level.value)[level.key] = std::move(value));
  }

  bool add(Json value) { return place(std::move(value)) != nullptr; }

  bool open(Json container) {
    if (open_.size() >= limits_.max_depth)
      return refuse("nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    Json* placed = place(std::move(container));
    if (placed == nullptr) return false;
    // A container stays where it is while it is open: its parent grows only after it is closed.
    open_.push_back({placed, {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Level> open_;
  std::size_t n_nodes_ = 0;
  std::string problem_;
};

Error malformed(std::string what) {
  return {ErrorCode::kMalformed, "not valid JSON: " + std::move(what)};
}

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return malformed("it has " + std::to_string(text.size()) + " bytes, more than the limit of " +
                     std::to_string(limits.max_bytes));
  }
  // nlohmann would skip a byte order mark; RFC 8259 forbids writing one.
  if (text.starts_with("\xEF\xBB\xBF")) return malformed("it begins with a byte order mark");
  StrictBuilder builder(limits);
  try {
    if (Json::sax_parse(text.begin(), text.end(), &builder)) return std::move(builder.root());
  } catch (const std::exception& error) {
    return malformed(error.what());
  }
  return malformed(builder.problem());
}

std::string to_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string to_text(const OrderedJson& value, int indent) {
  return value.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

double shortest(float value) {
  for (int digits = 1; digits <= 9; ++digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", digits, static_cast<double>(value));
    if (std::strtof(text, nullptr) == value) return std::strtod(text, nullptr);
  }
  return static_cast<double>(value);
}

}  // namespace foretoken
