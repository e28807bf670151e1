// Prompts by kind of text: models/prompts.json or a file of the same form, conversations of
// ShareGPT, or lines of OpenAI's requests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/messages/client.h"

namespace foretoken::cli {

struct DemoPrompt {
  std::string kind;
  std::vector<wire::ChatMessage> messages;
  std::vector<TokenId> token_ids = {};  // instead of messages, where there are some
};

// "" = the demo prompts beside the demo models. Throws FatalError naming the file and what is
// wrong.
std::vector<DemoPrompt> load_prompts(const std::string& path);

// Words of the prompts in an order that the seed decides; at least so many.
std::string random_words(const std::vector<DemoPrompt>& prompts,
                         std::size_t n_words,
                         std::uint64_t seed);

// Its first message begins with both numbers.
DemoPrompt numbered(DemoPrompt prompt, std::uint64_t seed, std::size_t number);

// In file order within each kind, and a prompt of each kind in turn: any number of the first ones
// has all kinds alike.
std::vector<DemoPrompt> kinds_in_turn(const std::vector<DemoPrompt>& prompts);

// At most `per_kind` of every kind, in file order.
std::vector<DemoPrompt> take_per_kind(const std::vector<DemoPrompt>& prompts, std::size_t per_kind);

}  // namespace foretoken::cli
