#include "tests/tokenizer/oracle/oniguruma.h"

#include <oniguruma.h>

#include "common/base/check.h"

namespace foretoken {

struct Oniguruma::Impl {
  regex_t* regex = nullptr;
};

Oniguruma::Oniguruma(std::string_view pattern) : impl_(std::make_unique<Impl>()) {
  const auto* begin = reinterpret_cast<const OnigUChar*>(pattern.data());
  OnigErrorInfo error;
  const int code = onig_new(&impl_->regex, begin, begin + pattern.size(), ONIG_OPTION_NONE,
                            ONIG_ENCODING_UTF8, ONIG_SYNTAX_RUBY, &error);
  FORETOKEN_CHECK(code == ONIG_NORMAL, "a tested pattern that the reference refuses");
}

Oniguruma::~Oniguruma() { onig_free(impl_->regex); }

std::vector<TextRange> Oniguruma::find_all(std::string_view text) const {
  const auto* begin = reinterpret_cast<const OnigUChar*>(text.data());
  const auto* end = begin + text.size();
  OnigRegion* region = onig_region_new();
  std::vector<TextRange> matches;
  for (std::size_t at = 0; at <= text.size();) {
    if (onig_search(impl_->regex, begin, end, begin + at, end, region, ONIG_OPTION_NONE) < 0) break;
    const TextRange match{static_cast<std::size_t>(region->beg[0]),
                          static_cast<std::size_t>(region->end[0])};
    FORETOKEN_CHECK(match.begin < match.end, "a tested pattern that matches nothing");
    matches.push_back(match);
    at = match.end;
  }
  onig_region_free(region, 1);
  return matches;
}

}  // namespace foretoken
