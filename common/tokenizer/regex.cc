#include "common/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/tokenizer/json_tree.h"
#include "common/tokenizer/limits.h"
#include "common/tokenizer/tokenizer.h"

namespace foretoken {
namespace {

// White_Space as Oniguruma and Unicode have it. PCRE2's own \s adds U+180E, which has not been a
// space since 2013.
constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

constexpr std::size_t kJitStackStart = 32u << 10;
constexpr std::size_t kJitStackMost = 1u << 20;

// \s and \S by their members. \S inside a class has no such spelling and stays PCRE2's; no tested
// pattern has one.
std::string spell_out_spaces(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's' && in_class) {
        out.append(kSpaces);
      } else if ((escaped == 's' || escaped == 'S') && !in_class) {
        out.append(escaped == 's' ? "[" : "[^").append(kSpaces).append("]");
      } else {
        out.push_back('\\');
        out.push_back(escaped);
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out.push_back(c);
  }
  return out;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct RegexScratch::Impl {
  Impl()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr)) {
    if (data == nullptr || context == nullptr) {
      pcre2_jit_stack_free(stack);
      pcre2_match_context_free(context);
      pcre2_match_data_free(data);
      throw std::bad_alloc();
    }
    pcre2_set_match_limit(context, tokenizer_limits::kRegexMatchLimit);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Impl() {
    if (stack != nullptr) pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

RegexScratch::RegexScratch() : impl_(std::make_unique<Impl>()) {}
RegexScratch::~RegexScratch() = default;

struct Regex::Impl {
  explicit Impl(pcre2_code* compiled) : code(compiled) {}
  ~Impl() { pcre2_code_free(code); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  pcre2_code* code;
  std::string pattern;
};

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern, RegexJit jit) {
  const std::string spelled = spell_out_spaces(pattern);
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr);
  if (compiled == nullptr && code == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
  if (compiled == nullptr)
    return Error{ErrorCode::kMalformed, "the pattern \"" + printable(pattern) +
                                            "\" does not compile: " + message_of(code)};
  auto impl = std::make_unique<Impl>(compiled);
  impl->pattern = pattern;
  // A kernel that forbids writable code refuses this; the interpreter then gives the same matches.
  if (jit == RegexJit::kWherePossible) (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
  return Regex(std::move(impl));
}

Result<void> Regex::find_all(std::string_view text,
                             RegexScratch& scratch,
                             std::vector<TextRange>& matches) const {
  constexpr std::size_t kNowhere = ~std::size_t{0};
  std::size_t at = 0;
  std::size_t last_end = kNowhere;
  while (at <= text.size()) {
    const int rc = pcre2_match(impl_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                               at, PCRE2_NO_UTF_CHECK, scratch.impl_->data, scratch.impl_->context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
    if (rc < 0)
      return Error{ErrorCode::kInvalidValue, "the text takes the split pattern \"" +
                                                 printable(impl_->pattern) +
                                                 "\" over its limit: " + message_of(rc)};
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch.impl_->data);
    const TextRange match{range[0], range[1]};
    if (match.begin == match.end && match.end == last_end) {
      if (at >= text.size()) break;
      at = last_end + utf8::sequence_length(static_cast<unsigned char>(text[last_end]));
      last_end = kNowhere;
      continue;
    }
    matches.push_back(match);
    at = last_end = match.end;
  }
  return {};
}

std::size_t count_unassigned(std::string_view text) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return 0;
  static const Result<Regex> unassigned = Regex::compile(R"(\p{Cn})", RegexJit::kWherePossible);
  FORETOKEN_CHECK(unassigned.ok(), "a pattern of ours");
  RegexScratch scratch;
  std::vector<TextRange> found;
  return unassigned->find_all(text, scratch, found).ok() ? found.size() : 0;
}

std::string_view gpt2_pattern() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

std::span<const std::string_view> tested_patterns() {
  static constexpr std::string_view kTested[] = {
      // GPT-2
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      // Llama 3
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      // Qwen 2, 2.5, 3
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      // cl100k
      R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
      // o200k
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      // Mistral's Tekken
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      // Qwen 3.5
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      // DeepSeek V3
      R"(\p{N}{1,3})",
      "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      // parts of others
      R"([\r\n])",
      R"(\s?\p{L}+)",
      R"(\s?\p{P}+)",
      R"(\p{N})",
      R"(\p{N}+)",
      R"(\d)",
      R"(\d+)",
      R"(\d{1,3})",
      R"([0-9])",
      R"([0-9]{3})",
      R"(\s+)",
      R"( +)",
      R"( {2,})",
      R"(\n)",
  };
  return kTested;
}

bool is_tested_pattern(std::string_view pattern) {
  std::string spelled;
  for (const char c : pattern) {
    if (c == '\n')
      spelled += "\\n";
    else if (c == '\r')
      spelled += "\\r";
    else
      spelled += c;
  }
  const auto tested = tested_patterns();
  return std::find(tested.begin(), tested.end(), spelled) != tested.end();
}

}  // namespace foretoken
