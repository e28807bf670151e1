// A conversation of the chat as a file.
#include "services/cli/conversation.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "common/base/file.h"
#include "services/cli/request_json.h"
#include "services/cli/verbs.h"
#include "tests/support/temp_folder.h"

namespace foretoken::cli {
namespace {

TEST(Conversations, AreSavedWithAllThatTheirMessagesHad) {
  const test::TempFolder folder;
  const std::string file = (folder / "tools.json").string();
  const Json messages = {
      {{"role", "system"}, {"content", "Use tools."}, {"extra", R"({"name":"z","a":1})"}},
      {{"role", "user"}, {"content", "How warm is it?"}},
      {{"role", "assistant"},
       {"content", ""},
       {"extra", R"({"tool_calls":[{"id":"1","function":{"name":"warmth","arguments":{}}}]})"}},
      {{"role", "tool"}, {"content", "20"}, {"extra", R"({"tool_call_id":"1"})"}},
      {{"role", "assistant"}, {"content", "It is 20 degrees."}}};
  std::ofstream(file) << to_text(Json{{"schema", "foretoken.chat/1"}, {"messages", messages}});
  Conversation conversation({}, "");
  ASSERT_TRUE(conversation.load(file).ok());
  ASSERT_TRUE(conversation.save(file).ok());
  const auto text = read_text_file(file, 1 << 20);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(messages, (*parse_json(*text))["messages"]);
  // And the model sees them.
  const auto request = conversation.request_for("And now?");
  ASSERT_EQ(6u, request.messages.size());
  EXPECT_EQ(R"({"tool_call_id":"1"})", request.messages[3].extra.text);
  EXPECT_EQ(R"({"name":"z","a":1})", request.messages[0].extra.text);
}

TEST(Conversations, ANewSystemMessageTakesThePlaceOfAllOfTheOldOne) {
  const test::TempFolder folder;
  const std::string file = (folder / "system.json").string();
  const Json messages = {{{"role", "system"}, {"content", "Old."}, {"extra", R"({"name":"z"})"}}};
  std::ofstream(file) << to_text(Json{{"schema", "foretoken.chat/1"}, {"messages", messages}});
  Conversation conversation({}, "");
  ASSERT_TRUE(conversation.load(file).ok());
  conversation.set_system("New.");
  EXPECT_EQ((wire::ChatMessage{"system", "New."}), conversation.request_for("x").messages[0]);
  conversation.set_system("");
  EXPECT_EQ("user", conversation.request_for("x").messages[0].role);
}

TEST(Conversations, TakeTheValueOfATextKeyAsItIs) {
  Conversation conversation({}, "");
  const std::pair<const char*, const char*> settings[] = {{"json_schema", R"({"type": "object"})"},
                                                          {"regex", "42"},
                                                          {"gbnf", R"(root ::= "a")"},
                                                          {"prediction", "[1]"},
                                                          {"tenant", "on"}};
  for (const auto& [key, value] : settings) {
    const auto done = conversation.set(key, value);
    EXPECT_TRUE(done.ok()) << key << ": " << done.error().message;
    EXPECT_EQ(value, conversation.settings()[key]);
    ASSERT_TRUE(conversation.unset(key).ok());  // one constraint at a time
  }
}

TEST(Conversations, GoToTheEndOfTheContextUnlessALengthIsGiven) {
  const auto asked = [](wire::ClientRequest flags) {
    const auto request = request_from({.request = std::move(flags)});
    return Conversation(*request, "").request_for("x").params.max_tokens;
  };
  wire::ClientRequest flags;
  flags.params.min_tokens = 200;
  flags.given.insert("min_tokens");
  EXPECT_EQ(kToEndOfContext, asked(flags));
  EXPECT_FALSE(json_of_request(*request_from({.request = flags})).contains("max_tokens"));
  flags.params.max_tokens = 300;
  flags.given.insert("max_tokens");
  EXPECT_EQ(300U, asked(flags));
  flags.params.max_tokens = kDefaultMaxTokens;  // the default, and yet asked for
  flags.params.min_tokens = 0;
  EXPECT_EQ(kDefaultMaxTokens, asked(flags));
}

}  // namespace
}  // namespace foretoken::cli
