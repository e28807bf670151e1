// Oniguruma behind a wall: its header and that of GoogleTest do not go together.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "common/tokenizer/regex.h"

namespace foretoken {

class Oniguruma {
 public:
  explicit Oniguruma(std::string_view pattern);
  ~Oniguruma();
  Oniguruma(const Oniguruma&) = delete;
  Oniguruma& operator=(const Oniguruma&) = delete;

  // For patterns that match no empty text.
  std::vector<TextRange> find_all(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace foretoken
