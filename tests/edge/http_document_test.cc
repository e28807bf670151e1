// docs/reference/http.md is what the tables of the edge say.
#include "services/edge/http_document.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "common/messages/speculation_object.h"
#include "services/edge/anthropic.h"
#include "services/edge/openai.h"
#include "services/edge/request_keys.h"
#include "services/edge/responses.h"
#include "services/edge/triton.h"

namespace foretoken::edge {
namespace {

TEST(HttpDocument, ThePageIsWhatTheTablesSay) {
  const std::string path = FORETOKEN_SOURCE_DIR "/docs/reference/http.md";
  if (std::getenv("FORETOKEN_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << http_document();
  std::ostringstream page;
  page << std::ifstream(path).rdbuf();
  EXPECT_EQ(page.str(), http_document()) << "run edge_test with FORETOKEN_UPDATE_GOLDEN=1";
}

// The lines of one endpoint that begin with this field.
std::string line_of(const std::string& endpoint, std::string_view field) {
  const std::string page = http_document();
  const std::size_t section = page.find("\n## " + endpoint + "\n");
  const std::size_t begin = page.find("\n| `" + std::string(field) + "` |", section);
  return page.substr(begin + 1, page.find('\n', begin + 1) - begin - 1);
}

TEST(HttpDocument, ALimitStandsBesideANote) {
  for (const auto& [endpoint, fields] :
       {std::pair{"POST /v1/chat/completions", chat_fields()},
        std::pair{"POST /v1/completions", completion_fields()},
        std::pair{"POST /v1/responses", response_fields()},
        std::pair{"POST /v1/messages", message_fields()},
        std::pair{"POST /v2/models/NAME/generate, generate_stream", triton_fields()}})
    for (const BodyField& field : fields) {
      const RequestKey* key = listed_key(field.limit_key.empty() ? field.key : field.limit_key);
      if (key == nullptr || limit_text(key->limit).empty()) continue;
      EXPECT_TRUE(line_of(endpoint, field.name).ends_with(" (" + limit_text(key->limit) + ") |"))
          << endpoint << ": " << line_of(endpoint, field.name);
    }
}

TEST(HttpDocument, HasTheLimitsThatAreTheEdgesOwn) {
  EXPECT_EQ(
      line_of("POST /v1/chat/completions", "n"),
      "| `n` | honoured | answers, at most edge.max_choices; answer i is the same for every n "
      "(from 1 to 16) |");
  EXPECT_EQ(line_of("POST /v1/completions", "prompt"),
            "| `prompt` | honoured | one prompt or several, each a text or a list of token ids (at "
            "most 128) |");
}

TEST(HttpDocument, NamesEveryMemberOfSpeculation) {
  for (const auto fields :
       {chat_fields(), completion_fields(), response_fields(), message_fields()})
    for (const BodyField& field : fields) {
      if (field.name != "speculation") continue;
      for (const auto& member : wire::kSpeculationMembers)
        EXPECT_NE(field.note.find(member.name), std::string_view::npos) << member.name;
    }
}

}  // namespace
}  // namespace foretoken::edge
