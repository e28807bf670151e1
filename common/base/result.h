// Result<T>: a value, or the Error of one request or peer. FatalError: the world is wrong, this
// process cannot go on; thrown while starting, caught once in service_main. See
// docs/architecture.md, "Three kinds of wrong".
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "common/base/check.h"
#include "common/base/error_code.h"

namespace foretoken {

// What went wrong, for a person: what, which one and the limit. `param` names the request field, if
// one is to blame.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string param = {};
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return checked(), std::get<0>(state_); }
  const T& value() const& { return checked(), std::get<0>(state_); }
  T&& value() && { return checked(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    FORETOKEN_CHECK(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    FORETOKEN_CHECK(!ok());
    return std::get<1>(std::move(state_));
  }

 private:
  void checked() const { FORETOKEN_CHECK(ok(), "value() of a Result that holds an error"); }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error)
      : error_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose
  bool ok() const { return error_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    FORETOKEN_CHECK(!ok());
    return std::get<1>(error_);
  }

 private:
  std::variant<std::monostate, Error> error_;
};

// The world is wrong: missing weights, a bad key, no device. service_main prints one line and picks
// the exit code.
class FatalError : public std::runtime_error {
 public:
  FatalError(ErrorCode code, const std::string& sentence)
      : std::runtime_error(sentence), code_(code) {}
  explicit FatalError(const Error& error) : FatalError(error.code, error.message) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Unwraps a Result while starting up.
template <class T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw FatalError(result.error());
  return std::move(result).value();
}

}  // namespace foretoken
