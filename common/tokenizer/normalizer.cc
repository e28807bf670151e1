#include "common/tokenizer/normalizer.h"

#include <utility>

#include "common/base/utf8.h"
#include "common/tokenizer/limits.h"

namespace foretoken {
namespace {

void strip(std::string& text, const normalizer::Strip& which) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  if (which.left) {
    while (begin < end) {
      const utf8::CodePoint point = utf8::code_point_at(text, begin);
      if (!unicode::is_space(point.value)) break;
      begin += point.length;
    }
  }
  if (which.right) {
    while (end > begin) {
      const utf8::CodePoint point = utf8::code_point_before(text, end);
      if (!unicode::is_space(point.value)) break;
      end -= point.length;
    }
  }
  text = text.substr(begin, end - begin);
}

std::string replace_literal(std::string_view text,
                            const std::string& pattern,
                            const std::string& content) {
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at;
       !pattern.empty() && (at = text.find(pattern, done)) != std::string_view::npos;) {
    out.append(text, done, at - done).append(content);
    done = at + pattern.size();
  }
  return out.append(text.substr(done));
}

Result<std::string> replace_regex(std::string_view text,
                                  const Regex& regex,
                                  const std::string& content,
                                  RegexScratch& scratch) {
  std::vector<TextRange> matches;
  if (Result<void> found = regex.find_all(text, scratch, matches); !found.ok())
    return found.error();
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (const TextRange& match : matches) {
    out.append(text, done, match.begin - done).append(content);
    done = match.end;
  }
  return out.append(text.substr(done));
}

}  // namespace

Result<Normalizer> Normalizer::build(std::vector<NormalizerStep> steps, RegexJit jit) {
  Normalizer built;
  for (NormalizerStep& spec : steps) {
    Step step{std::move(spec), std::nullopt};
    if (const auto* replace = std::get_if<normalizer::Replace>(&step.spec);
        replace && replace->pattern.is_regex) {
      Result<Regex> regex = Regex::compile(replace->pattern.text, jit);
      if (!regex.ok()) return regex.error();
      step.regex = std::move(*regex);
    }
    built.steps_.push_back(std::move(step));
  }
  return built;
}

Result<std::string> Normalizer::apply_step(const Step& step,
                                           std::string text,
                                           RegexScratch& scratch) {
  if (const auto* form = std::get_if<normalizer::UnicodeForm>(&step.spec))
    return unicode::normalize(text, form->form);
  if (std::holds_alternative<normalizer::Lowercase>(step.spec)) return unicode::lowercase(text);
  if (const auto* which = std::get_if<normalizer::Strip>(&step.spec)) {
    strip(text, *which);
    return text;
  }
  if (const auto* prepend = std::get_if<normalizer::Prepend>(&step.spec)) {
    if (!text.empty()) text.insert(0, prepend->text);
    return text;
  }
  const auto& replace = std::get<normalizer::Replace>(step.spec);
  if (step.regex) return replace_regex(text, *step.regex, replace.content, scratch);
  return replace_literal(text, replace.pattern.text, replace.content);
}

Result<std::string> Normalizer::apply(std::string_view text, RegexScratch& scratch) const {
  // One character may become many (18 in the worst compatibility form, any number by Replace).
  constexpr std::size_t kMostBytes = 4 * tokenizer_limits::kMaxTextBytes;
  std::string current(text);
  for (const Step& step : steps_) {
    Result<std::string> next = apply_step(step, std::move(current), scratch);
    if (!next.ok()) return next;
    current = std::move(*next);
    if (current.size() > kMostBytes)
      return Error{ErrorCode::kInvalidValue, "the text has " + std::to_string(current.size()) +
                                                 " bytes once normalized; the limit is " +
                                                 std::to_string(kMostBytes)};
  }
  return current;
}

}  // namespace foretoken
