// The members of a quantization_config, or of a file in its place, by name. Every complaint names
// file, member and finding.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/json.h"
#include "common/base/result.h"

namespace foretoken {

class QuantizationReader {
 public:
  // owner: the member of the file's object whose members are read, "" for the object itself.
  explicit QuantizationReader(const std::string& file,
                              const std::string& owner = "quantization_config")
      : file_(file), owner_(owner) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& sentence) const {
    throw FatalError(ErrorCode::kUnsupportedModel, file_ + ": " + name_of(key) + " " + sentence);
  }
  [[noreturn]] void malformed(const std::string& key, const std::string& sentence) const {
    throw FatalError(ErrorCode::kMalformed, file_ + ": " + name_of(key) + " " + sentence);
  }
  // A value as messages show it.
  static std::string shown(const Json& value);
  // A member that is there and not null.
  static const Json* find(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  std::string text(const Json& object,
                   const std::string& prefix,
                   const char* key,
                   const std::string& otherwise) const {
    const Json* value = find(object, key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) malformed(prefix + key, "must be a string");
    return value->get<std::string>();
  }
  bool flag(const Json& object, const std::string& prefix, const char* key, bool otherwise) const {
    const Json* value = find(object, key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) malformed(prefix + key, "must be true or false");
    return value->get<bool>();
  }

 private:
  std::string name_of(const std::string& key) const {
    if (owner_.empty()) return key.empty() ? "the whole" : key;
    return key.empty() ? owner_ : owner_ + "." + key;
  }

  const std::string& file_;
  std::string owner_;
};

// How many weights share a scale, where such can be held in groups.
std::int64_t stored_group_of(const Json& size,
                             const std::string& key,
                             const QuantizationReader& reader);

}  // namespace foretoken
