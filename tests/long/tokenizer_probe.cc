// What our tokenizer makes of the texts and ids in a file, for comparison with a reference:
//   tokenizer_probe QUESTIONS ANSWERS
// QUESTIONS is JSON, {"folder": ..., "texts": [...], "sequences": [[id...]...]}. ANSWERS has what
// each text becomes without and with special tokens, and what those ids and each sequence become
// again, at once and token by token; or {"refused": sentence}. Patterns of any tokenizer are
// permitted.
#include <fstream>
#include <iostream>
#include <iterator>

#include "common/base/json.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"

namespace foretoken {
namespace {

std::string streamed(const Tokenizer& tokenizer,
                     std::span<const TokenId> ids,
                     SkipSpecialTokens skip) {
  StreamOptions options;
  options.skip_special = skip;
  StreamDecoder decoder(tokenizer, options);
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id).text;
  return text + decoder.finish().text;
}

Json decoded(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Json answer = {{"text", tokenizer.decode(ids, SkipSpecialTokens::kNo)},
                 {"without_special", tokenizer.decode(ids, SkipSpecialTokens::kYes)}};
  answer["streams"] =
      streamed(tokenizer, ids, SkipSpecialTokens::kNo) == answer["text"] &&
      streamed(tokenizer, ids, SkipSpecialTokens::kYes) == answer["without_special"];
  return answer;
}

Json answer_to(const Json& questions) {
  const auto loaded =
      Tokenizer::load(questions["folder"].get<std::string>(), {.patterns = RegexPolicy::kAny});
  if (!loaded.ok()) return {{"refused", loaded.error().message}};
  const Tokenizer& tokenizer = **loaded;
  Json answers = {{"texts", Json::array()}, {"sequences", Json::array()}};
  for (const Json& text : questions["texts"]) {
    const auto ids = tokenizer.encode(text.get_ref<const std::string&>(), AddSpecialTokens::kNo);
    const auto special =
        tokenizer.encode(text.get_ref<const std::string&>(), AddSpecialTokens::kYes);
    if (!ids.ok() || !special.ok()) {
      answers["texts"].push_back(
          {{"refused", ids.ok() ? special.error().message : ids.error().message}});
      continue;
    }
    Json answer = decoded(tokenizer, *ids);
    answer["ids"] = *ids;
    answer["ids_with_special"] = *special;
    answers["texts"].push_back(std::move(answer));
  }
  for (const Json& sequence : questions["sequences"])
    answers["sequences"].push_back(decoded(tokenizer, sequence.get<std::vector<TokenId>>()));
  return answers;
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  using namespace foretoken;
  if (argc != 3) {
    std::cerr << "usage: tokenizer_probe QUESTIONS ANSWERS\n";
    return 64;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const auto questions =
      parse_json(std::string(std::istreambuf_iterator<char>(file), {}), {.max_bytes = 256u << 20});
  if (!questions.ok()) {
    std::cerr << argv[1] << ": " << questions.error().message << "\n";
    return 65;
  }
  std::ofstream(argv[2], std::ios::binary) << to_text(answer_to(*questions)) << "\n";
}
