// How each kind of field looks in a body: the pack and read visitors over the listings of
// messages.h. Included by codec.cc and by tests only. A record is an array of its fields in order;
// lists of plain numbers are one msgpack bin, little-endian.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/messages/messages.h"
#include "common/wire/listing.h"
#include "common/wire/msgpack_reader.h"
#include "common/wire/msgpack_writer.h"
#include "common/wire/version.h"

namespace foretoken::wire {

static_assert(std::endian::native == std::endian::little, "bins are copied as they lie in memory");

template <class T>
concept Record = requires {
  Listing<T>::kName;
};
template <class T>
concept PlainNumber = std::is_arithmetic_v<T> && !std::same_as<T, bool>;

// Fields a body has in this version, and those it had in x.0, which every sender must give.
struct FieldCount {
  std::size_t all = 0;
  std::size_t required = 0;
  template <class M>
  void operator()(int number, const char*, M&, const char*, int since_minor = 0) {
    FORETOKEN_CHECK(static_cast<std::size_t>(number) == ++all,
                    "fields are numbered from 1 in order");
    if (since_minor == 0) required = all;
  }
};

template <class T>
FieldCount count_fields() {
  FieldCount count;
  T example{};
  Listing<T>::fields(example, count);
  return count;
}

class Packer {
 public:
  explicit Packer(MsgpackWriter& out) : out_(out) {}
  // What a reader would refuse in what was packed, as a sentence; empty = nothing.
  const std::string& too_large() const { return too_large_; }

  template <Record T>
  void value(const T& record) {
    out_.array(count_fields<T>().all);
    Listing<T>::fields(record, [this](int, const char*, const auto& field, const char*, int = 0) {
      value(field);
    });
  }
  void value(bool b) { out_.boolean(b); }
  void value(float f) { out_.float32(f); }
  void value(double d) { out_.float64(d); }
  void value(const std::string& text) {
    fits(text.size() <= kMaxStringBytes, "a string", text.size(), kMaxStringBytes);
    out_.str(text);
  }
  template <std::integral T>
  requires(!std::same_as<T, bool>) void value(T number) {
    if constexpr (std::is_signed_v<T>)
      out_.integer(number);
    else
      out_.uint(number);
  }
  template <class T>
  requires std::is_enum_v<T>
  void value(T e) { out_.uint(static_cast<std::uint64_t>(e)); }
  template <class Tag, class Integer>
  void value(const Id<Tag, Integer>& id) {
    out_.uint(id.value);
  }
  template <PlainNumber T>
  void value(const std::vector<T>& list) {
    out_.bin({reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T)});
  }
  template <class T>
  requires(!PlainNumber<T>) void value(const std::vector<T>& list) {
    fits(list.size() <= kMaxArray, "a list", list.size(), kMaxArray);
    out_.array(list.size());
    for (const auto& element : list) value(element);
  }
  void value(const std::pair<TokenId, float>& pair) {
    out_.array(2);
    value(pair.first);
    value(pair.second);
  }

 private:
  void fits(bool does, const char* what, std::size_t size, std::size_t most) {
    if (!does && too_large_.empty())
      too_large_ = std::string("has ") + what + " of " + std::to_string(size) + "; the limit is " +
                   std::to_string(most);
  }

  MsgpackWriter& out_;
  std::string too_large_;
};

class BodyReader {
 public:
  explicit BodyReader(MsgpackReader& in) : in_(in) {}
  const std::string& path() const { return path_; }  // "records.tail" of the field that failed

  template <Record T>
  bool value(T& record) {
    const FieldCount count = count_fields<T>();
    std::size_t size = 0;
    if (!in_.array(size)) return false;
    if (size < count.required)
      return in_.fail("has " + std::to_string(size) + " fields; version " +
                      std::to_string(kVersionMajor) + ".0 has " + std::to_string(count.required));
    std::size_t at = 0;
    bool good = true;
    Listing<T>::fields(record, [&](int, const char* name, auto& field, const char*, int = 0) {
      if (!good || at >= size) return;
      ++at;
      good = value(field);
      if (!good) path_ = path_.empty() ? name : std::string(name) + "." + path_;
    });
    for (; good && at < size; ++at) good = in_.skip();  // of a newer minor version
    in_.leave();
    return good;
  }
  bool value(bool& b) { return in_.boolean(b); }
  bool value(float& f) {
    double d = 0;
    if (!in_.real(d)) return false;
    f = static_cast<float>(d);
    return std::isfinite(f) || in_.fail("does not fit a float32");
  }
  bool value(double& d) { return in_.real(d); }
  bool value(std::string& text) {
    std::string_view view;
    if (!in_.str(view)) return false;
    text = view;
    return true;
  }
  template <std::integral T>
  requires(!std::same_as<T, bool>) bool value(T& number) {
    if constexpr (std::is_signed_v<T>) {
      std::int64_t wide = 0;
      if (!in_.sint(wide, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()))
        return false;
      number = static_cast<T>(wide);
    } else {
      std::uint64_t wide = 0;
      if (!in_.uint(wide, std::numeric_limits<T>::max())) return false;
      number = static_cast<T>(wide);
    }
    return true;
  }
  template <class T>
  requires std::is_enum_v<T>
  bool value(T& e) {
    std::uint64_t wide = 0;
    if (!in_.uint(wide, enum_count(T{}) - 1)) return false;
    e = static_cast<T>(wide);
    return true;
  }
  bool value(ErrorCode& code) {
    std::uint64_t wide = 0;
    if (!in_.uint(wide, 0xffff)) return false;
    // A newer peer may know more codes: to us they are all "internal".
    code = error_code_from_number(wide).value_or(ErrorCode::kInternal);
    return true;
  }
  template <class Tag, class Integer>
  bool value(Id<Tag, Integer>& id) {
    return value(id.value);
  }
  template <PlainNumber T>
  bool value(std::vector<T>& list) {
    std::string_view bytes;
    if (!in_.bin(bytes)) return false;
    if (bytes.size() % sizeof(T) != 0)
      return in_.fail("has " + std::to_string(bytes.size()) + " bytes, not a multiple of " +
                      std::to_string(sizeof(T)));
    list.resize(bytes.size() / sizeof(T));
    if (!list.empty()) std::memcpy(list.data(), bytes.data(), bytes.size());
    for (const T number : list) {
      if constexpr (std::same_as<T, TokenId>) {
        if (number < 0) return in_.fail("has token id " + std::to_string(number));
      } else if constexpr (std::floating_point<T>) {
        if (!std::isfinite(number)) return in_.fail("has a number that is not finite");
      }
    }
    return true;
  }
  template <class T>
  requires(!PlainNumber<T>) bool value(std::vector<T>& list) {
    std::size_t size = 0;
    if (!in_.array(size)) return false;
    list.clear();
    for (std::size_t i = 0; i < size; ++i)
      if (!value(list.emplace_back())) return false;
    in_.leave();
    return true;
  }
  bool value(std::pair<TokenId, float>& pair) {
    std::size_t size = 0;
    if (!in_.array(size)) return false;
    if (size != 2) return in_.fail("has " + std::to_string(size) + " elements; a pair has 2");
    if (!value(pair.first) || !value(pair.second)) return false;
    in_.leave();
    return true;
  }

 private:
  MsgpackReader& in_;
  std::string path_;
};

}  // namespace foretoken::wire
