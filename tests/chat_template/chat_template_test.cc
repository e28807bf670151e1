#include "services/chat_template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/base/json.h"

namespace foretoken {
namespace {

using ::testing::HasSubstr;

const ChatTemplate::SpecialTokens kTokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}};

std::string read(const std::string& name) {
  std::ifstream stream(std::string(FORETOKEN_SOURCE_DIR) + "/tests/chat_template/" + name,
                       std::ios::binary);
  std::stringstream bytes;
  bytes << stream.rdbuf();
  return bytes.str();
}

std::unique_ptr<ChatTemplate> compile(std::string_view source,
                                      const ChatTemplateLimits& limits = {}) {
  auto compiled = ChatTemplate::compile(source, kTokens, limits);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  return compiled.ok() ? std::move(*compiled) : nullptr;
}

constexpr std::string_view kHello = R"([{"role":"user","content":"Hello"}])";

Error refusal(std::string_view source,
              std::string_view messages = kHello,
              const ChatTemplateLimits& limits = {}) {
  auto compiled = ChatTemplate::compile(source, kTokens, limits);
  if (!compiled.ok()) return compiled.error();
  const auto text = (*compiled)->render(messages, true);
  EXPECT_FALSE(text.ok()) << "rendered " << (text.ok() ? text->substr(0, 200) : "");
  return text.ok() ? Error{} : text.error();
}

TEST(ChatTemplate, RendersLikeTransformers) {
  const auto golden = parse_json(read("golden.json"));
  ASSERT_TRUE(golden.ok());
  std::map<std::string, std::unique_ptr<ChatTemplate>> templates;
  std::size_t n_texts = 0, n_refusals = 0;
  for (const Json& entry : golden->at("cases")) {
    const std::string name = entry.at("template");
    auto& compiled = templates[name];
    if (!compiled) compiled = compile(read("templates/" + name + ".jinja"));
    ASSERT_NE(compiled, nullptr);
    const std::string messages = entry.at("messages");
    const std::string extra = entry.at("extra");
    const std::string what = name + " " + messages;
    const auto text =
        compiled->render(messages, entry.at("add_generation_prompt").get<bool>(), extra);
    if (entry.contains("text")) {
      ASSERT_TRUE(text.ok()) << what << "\n" << text.error().message;
      EXPECT_EQ(*text, entry.at("text").get<std::string>()) << what;
      ++n_texts;
    } else {
      ASSERT_FALSE(text.ok()) << what << "\n" << *text;
      EXPECT_EQ(text.error().code, ErrorCode::kInvalidValue);
      EXPECT_THAT(text.error().message, HasSubstr(entry.at("raises").get<std::string>())) << what;
      ++n_refusals;
    }
  }
  EXPECT_GE(templates.size(), 8u);
  EXPECT_GT(n_texts, 100u);
  EXPECT_GT(n_refusals, 10u);
}

TEST(ChatTemplate, EmbedsDebiansInterpreter) {
  const auto engine = ChatTemplate::engine();
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_THAT(*engine, HasSubstr("from /usr/lib/python3"));
}

TEST(ChatTemplate, SaysWhatATemplateRaises) {
  const Error error = refusal("{{ raise_exception('roles must alternate') }}");
  EXPECT_EQ(error.code, ErrorCode::kInvalidValue);
  EXPECT_THAT(error.message, HasSubstr("roles must alternate"));
}

TEST(ChatTemplate, ItsOwnMessageMayBeNoUnicode) {
  const Error error = refusal(R"({{ raise_exception('no \ud800 messages') }})");
  EXPECT_EQ(error.code, ErrorCode::kInvalidValue);
  EXPECT_THAT(error.message, HasSubstr(R"(no \ud800 messages)"));
}

TEST(ChatTemplate, RefusesASourceThatIsNotATemplate) {
  for (const char* source :
       {"{% for %}", "{{ ", "{% endif %}", "{% unknown_tag %}", "{{ 1 | no_such_filter }}"}) {
    const auto compiled = ChatTemplate::compile(source, kTokens);
    ASSERT_FALSE(compiled.ok()) << source;
    EXPECT_EQ(compiled.error().code, ErrorCode::kMalformed) << source;
  }
  const auto large = ChatTemplate::compile(std::string(300u << 10, 'x'), kTokens);
  ASSERT_FALSE(large.ok());
  EXPECT_THAT(large.error().message, HasSubstr("262144"));
}

TEST(ChatTemplate, ASecondTemplateIsForRequestsWithTools) {
  const auto both =
      ChatTemplate::compile("{{ messages[0].content }}", kTokens, {}, "{{ tools[0] }}");
  ASSERT_TRUE(both.ok()) << both.error().message;
  for (const char* variables : {"", "{}", R"({"tools":null})"})
    EXPECT_EQ(value_or_throw((*both)->render(kHello, true, variables)), "Hello") << variables;
  EXPECT_EQ(value_or_throw((*both)->render(kHello, true, R"({"tools":["f"]})")), "f");
  EXPECT_EQ(value_or_throw(compile("{{ tools[0] }}")->render(kHello, true, R"({"tools":["f"]})")),
            "f");
  for (const std::string& source : {std::string("{% for %}"), std::string(300u << 10, 'x')}) {
    const auto refused = ChatTemplate::compile("", kTokens, {}, source);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kMalformed);
  }
}

TEST(ChatTemplate, RefusesMessagesThatAreNot) {
  for (const char* messages : {"", "{}", "[1]", "[", "null", "\"x\"", "[{\"a\":NaN}]",
                               "[{\"role\":\"user\",\"content\":\"\\ud800\"}]", "\xff\xfe"}) {
    const Error error = refusal("{{ messages[0].content }}", messages);
    EXPECT_EQ(error.code, ErrorCode::kInvalidValue) << messages;
    EXPECT_FALSE(error.message.empty()) << messages;
  }
  EXPECT_EQ(refusal("x", std::string(200000, '[') + std::string(200000, ']')).code,
            ErrorCode::kInvalidValue);
}

TEST(ChatTemplate, ShutsTheSandbox) {
  for (const char* source : {
           "{{ messages.__class__.__mro__ }}",
           "{{ ''.__class__.__base__.__subclasses__() }}",
           "{{ raise_exception.__globals__ }}",
           "{{ namespace.__init__.__globals__ }}",
           "{{ '{0.__class__}'.format(messages) }}",
           "{{ ('{0.__class__.__init__.__globals__}' | format(messages)) ~ "
           "cycler.__init__.__globals__ }}",
           "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
           "{{ messages.append(1) }}",
           "{{ messages[0].update({'role': 'x'}) }}",
           "{% include '/etc/passwd' %}",
           "{% import 'os' as os %}",
           "{% extends 'base' %}",
           "{{ self.__init__.__globals__ }}",
           "{{ lipsum.__globals__ }}",
       }) {
    // Some of these Jinja2 refuses, some become an undefined value, which prints as nothing.
    const auto compiled = ChatTemplate::compile(source, kTokens);
    if (!compiled.ok()) continue;
    const auto text = (*compiled)->render(kHello, true);
    EXPECT_TRUE(!text.ok() || text->empty()) << source << "\n" << *text;
  }
}

TEST(ChatTemplate, StopsATemplateThatRunsTooLong) {
  ChatTemplateLimits limits;
  limits.max_steps = 200'000;
  for (const char* source : {
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
           "{% for a in range(99999) %}{% for b in range(99999) %}{% if b == 0 %}x{% endif %}{% "
           "endfor %}{% endfor %}",
           "{% set n = namespace(x=1) %}{% for i in range(99999) %}{% set n.x = n.x + 1 %}{{ n.x | "
           "string | length }}{% endfor %}"
           "{% for i in range(99999) %}{{ i }}{% endfor %}",
       })
    EXPECT_EQ(refusal(source, kHello, limits).code, ErrorCode::kInvalidValue) << source;
}

TEST(ChatTemplate, RefusesToMakeMuchOutOfLittle) {
  for (const char* source : {
           "{{ 'a' * 1000000000 }}",
           "{{ 'a' * (10 ** 9) }}",
           "{{ [0] * 1000000000 }}",
           "{{ 10 ** 100000000 }}",
           "{{ 'a' | center(1000000000) }}",
           "{{ 'a'.ljust(1000000000) }}",
           "{{ '%1000000000d' % 1 }}",
           "{{ '%1000000000d' | format(1) }}",
           "{{ '%*d' % (1000000000, 1) }}",
           "{{ '{:>1000000000}'.format('a') }}",
           "{{ '{:>{w}}'.format('a', w=1000000000) }}",
           "{{ 'ab'.join(['b' * 1000000] * 100000) }}",
           "{{ ('\t' * 100000).expandtabs(1000000) }}",
           "{{ [1]|batch(1000000000, 0)|list }}",
           "{{ 'a b' | wordwrap(1, wrapstring='b' * 10000000) }}",
           "{{ range(1000000000) | list }}",
           "{{ ('a' * 10000).replace('a', 'b' * 1000000) }}",
           "{{ ('a' * 10000) | replace('a', 'b' * 1000000) }}",
           "{{ (['a'] * 100000) | join('b' * 1000000) }}",
           "{{ messages | tojson(indent=1000000000) }}",
           "{% set n = namespace(x='aaaaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x + n.x "
           "%}{% endfor %}{{ n.x }}",
           "{% set n = namespace(x='aaaaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x "
           "%}{% endfor %}{{ n.x }}",
           "{% set n = namespace(x=3) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor "
           "%}{{ n.x }}",
           "{% for i in range(20) %}{{ 'a' * 1000000 }}{% endfor %}",
           "{{ 'a\n' * 10000 | indent(1000000000) }}",
           "{{ strftime_now('%1000000000d') }}",
       }) {
    const Error error = refusal(source);
    EXPECT_EQ(error.code, ErrorCode::kInvalidValue) << source << " " << error.message;
  }
}

TEST(ChatTemplate, CountsSizeInBytes) {
  ChatTemplateLimits limits;
  limits.max_output_bytes = 10;
  EXPECT_EQ(refusal("{{ 'x' * 11 }}", kHello, limits).code, ErrorCode::kInvalidValue);
  EXPECT_EQ(refusal("{{ '漢' * 4 }}", kHello, limits).code, ErrorCode::kInvalidValue);
  EXPECT_EQ(*compile("{{ 'x' * 10 }}", limits)->render(kHello, true), "xxxxxxxxxx");
  limits.max_input_bytes = 5;
  EXPECT_EQ(refusal("x", kHello, limits).code, ErrorCode::kInvalidValue);
}

TEST(ChatTemplate, RendersTheSameAgainAndFromManyThreads) {
  const auto compiled =
      compile("{% for m in messages %}{{ m.content }}{% endfor %}{{ add_generation_prompt }}");
  ASSERT_NE(compiled, nullptr);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string text = std::to_string(t * 1000 + static_cast<std::size_t>(i));
        const auto out = compiled->render("[{\"content\":\"" + text + "\"}]", false);
        wrong[t] += !out.ok() || *out != text + "False";
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

TEST(ChatTemplate, TellsTheSameTimeAsLongAsTheProcessLives) {
  // Two readings of a clock differ in the microseconds.
  constexpr std::string_view kTime = "{{ strftime_now('%Y-%m-%d %H:%M:%S.%f') }}";
  const auto compiled = compile(kTime);
  const auto another = compile(kTime);
  ASSERT_TRUE(compiled && another);
  const auto first = compiled->render(kHello, true);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_THAT(*first, ::testing::MatchesRegex("20..-..-.. ..:..:..[.]......"));
  for (const auto& each : {compiled->render(kHello, true), another->render(kHello, true)}) {
    ASSERT_TRUE(each.ok()) << each.error().message;
    EXPECT_EQ(*each, *first);
  }
}

TEST(ChatTemplate, ADateThatTheRequestGivesWins) {
  const auto compiled = compile(read("templates/llama3.jinja"));
  ASSERT_NE(compiled, nullptr);
  const auto text = compiled->render(kHello, true, R"({"date_string":"26 Jul 2024"})");
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_THAT(*text, HasSubstr("Today Date: 26 Jul 2024\n"));
}

TEST(ChatTemplate, AfterARefusalTheNextRenderIsUntouched) {
  ChatTemplateLimits limits;
  limits.max_steps = 100'000;
  const auto compiled = compile(
      "{% if messages[0].content == 'loop' %}{% for a in range(99999) %}{% for b in range(99999) %}"
      "{% endfor %}{% endfor %}{% endif %}fine",
      limits);
  ASSERT_NE(compiled, nullptr);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(compiled->render(R"([{"content":"loop"}])", false).ok());
    const auto text = compiled->render(R"([{"content":"x"}])", false);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(*text, "fine");
  }
}

}  // namespace
}  // namespace foretoken
