#include "common/grammar/json_schema.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <random>

#include "common/base/json.h"
#include "common/grammar/constraint.h"
#include "common/grammar/json_schema_values.h"

namespace foretoken {
namespace {

// A vocabulary of the 256 bytes, so that a text is its tokens.
class SchemaTexts {
 public:
  SchemaTexts() {
    std::vector<std::string_view> tokens;
    for (int byte = 0; byte < 256; ++byte) bytes_ += static_cast<char>(byte);
    for (std::size_t byte = 0; byte < 256; ++byte)
      tokens.push_back(std::string_view(bytes_).substr(byte, 1));
    constraints_ = std::make_unique<Constraints>(tokens);
  }

  Result<Constraint> open(std::string_view schema) {
    return constraints_->open(GrammarKind::kJsonSchema, schema);
  }

  static bool allows(const Constraint& place, unsigned char byte) {
    return (place.allowed()[byte / 32] >> (byte % 32)) & 1;
  }

  static bool accepts(Constraint place, std::string_view text) {
    for (const char byte_of_text : text) {
      const auto byte = static_cast<unsigned char>(byte_of_text);
      if (!allows(place, byte)) return false;
      place.take(TokenId{byte});
    }
    return place.may_end();
  }

  bool accepts(std::string_view schema, std::string_view text) {
    const auto opened = open(schema);
    EXPECT_TRUE(opened.ok()) << schema << ": " << (opened.ok() ? "" : opened.error().message);
    return opened.ok() && accepts(*opened, text);
  }

  std::string refusal(std::string_view schema) {
    const auto opened = open(schema);
    return opened.ok() ? "none" : opened.error().message;
  }

 private:
  std::string bytes_;
  std::unique_ptr<Constraints> constraints_;
};

std::vector<Json> golden_schemas() {
  std::ifstream file(FORETOKEN_SOURCE_DIR "/tests/golden/grammar/json_schema.jsonl");
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
  return rows;
}

class JsonSchema : public testing::Test {
 protected:
  SchemaTexts texts_;
};

// Made by make_schema_goldens.py, judged by the Python package `jsonschema`. `other_form` holds
// valid texts that are never written: with white space, keys in another order, an escape in a key,
// a whole number with a fraction.
TEST_F(JsonSchema, AcceptsWhatIsValidInItsFormAndNothingElse) {
  const auto rows = golden_schemas();
  ASSERT_GT(rows.size(), 200u);
  std::size_t n_written = 0, n_wrong = 0;
  for (const Json& row : rows) {
    const auto& schema = row["schema"].get_ref<const std::string&>();
    SCOPED_TRACE(schema);
    const auto opened = texts_.open(schema);
    if (!opened.ok()) {
      EXPECT_TRUE(row["written"].empty()) << opened.error().message;
      continue;
    }
    for (const std::string text : row["written"]) {
      EXPECT_TRUE(SchemaTexts::accepts(*opened, text)) << text;
      ++n_written;
    }
    for (const char* list : {"wrong", "other_form"}) {
      for (const std::string text : row[list])
        EXPECT_FALSE(SchemaTexts::accepts(*opened, text)) << text;
      n_wrong += row[list].size();
    }
  }
  EXPECT_GT(n_written, 1000u);
  EXPECT_GT(n_wrong, 1000u);
}

// The check that enum, const and oneOf rest on, against the same judge.
TEST_F(JsonSchema, ChecksValuesAsTheReferenceDoes) {
  std::size_t n_known = 0;
  for (const Json& row : golden_schemas()) {
    const auto& schema_text = row["schema"].get_ref<const std::string&>();
    SCOPED_TRACE(schema_text);
    if (schema_text.find("\"format\"") != std::string::npos) continue;  // an annotation here
    const OrderedJson schema = OrderedJson::parse(schema_text);
    SchemaDocument document(schema);
    const FlatSchema flat = document.flatten({document.root()});
    for (const auto& [list, expected] :
         {std::pair{"written", Verdict::kYes}, std::pair{"other_form", Verdict::kYes},
          std::pair{"wrong", Verdict::kNo}}) {
      for (const std::string text : row[list]) {
        const OrderedJson value = OrderedJson::parse(text);
        if (value.is_number() && !is_exact_number(value)) continue;
        const Verdict verdict = check_value(value, flat, document);
        if (verdict == Verdict::kUnknown) continue;  // a pattern
        EXPECT_EQ(verdict, expected) << text;
        ++n_known;
      }
    }
    EXPECT_FALSE(document.failed());
  }
  EXPECT_GT(n_known, 2000u);
}

std::vector<unsigned char> allowed_bytes(const Constraint& place) {
  std::vector<unsigned char> bytes;
  for (int byte = 0; byte < 256; ++byte)
    if (SchemaTexts::allows(place, static_cast<unsigned char>(byte)))
      bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

// One of the allowed bytes at each place, those that close something more often than others.
std::optional<std::string> random_text(Constraint place, std::mt19937& random) {
  std::string text;
  for (int n = 0; n < 400; ++n) {
    const auto bytes = allowed_bytes(place);
    if (place.may_end() && (bytes.empty() || random() % 3 == 0)) return text;
    if (bytes.empty()) {
      ADD_FAILURE() << "no way on after " << text;
      return std::nullopt;
    }
    std::vector<unsigned char> closing;
    for (const unsigned char byte : bytes)
      if (std::string_view("\"}],").find(static_cast<char>(byte)) != std::string_view::npos)
        closing.push_back(byte);
    const auto& from = !closing.empty() && random() % 3 == 0 ? closing : bytes;
    const unsigned char byte = from[random() % from.size()];
    text += static_cast<char>(byte);
    place.take(TokenId{byte});
  }
  return std::nullopt;  // too long to be looked at
}

TEST_F(JsonSchema, WritesNothingButValidTexts) {
  std::mt19937 random(11);
  std::size_t n_texts = 0;
  for (const Json& row : golden_schemas()) {
    const auto& schema = row["schema"].get_ref<const std::string&>();
    SCOPED_TRACE(schema);
    const auto opened = texts_.open(schema);
    if (!opened.ok()) continue;
    const OrderedJson read = OrderedJson::parse(schema);
    SchemaDocument document(read);
    const FlatSchema flat = document.flatten({document.root()});
    for (int i = 0; i < 8; ++i) {
      const auto text = random_text(*opened, random);
      if (!text) continue;
      const auto value = parse_json(*text, {.max_depth = 300});
      if (!value.ok()) {  // an open object may have a further key twice
        EXPECT_NE(value.error().message.find("twice"), std::string::npos)
            << *text << value.error().message;
        continue;
      }
      EXPECT_NE(check_value(OrderedJson::parse(*text), flat, document), Verdict::kNo) << *text;
      ++n_texts;
    }
  }
  EXPECT_GT(n_texts, 800u);
}

TEST_F(JsonSchema, WritesIntegersWithinAllSmallBounds) {
  for (int low = -23; low <= 23; low += 3) {
    for (int high = low - 1; high <= 123; high += 7) {
      const std::string schema = R"({"type":"integer","minimum":)" + std::to_string(low) +
                                 R"(,"exclusiveMaximum":)" + std::to_string(high + 1) + "}";
      const auto opened = texts_.open(schema);
      ASSERT_EQ(opened.ok(), low <= high) << schema;
      for (int number = -130; opened.ok() && number <= 130; ++number) {
        ASSERT_EQ(SchemaTexts::accepts(*opened, std::to_string(number)),
                  low <= number && number <= high)
            << number << " " << schema;
      }
    }
  }
}

std::string tenths(int number) {
  const int magnitude = std::abs(number);
  return (number < 0 ? "-" : "") + std::to_string(magnitude / 10) + "." +
         std::to_string(magnitude % 10);
}

TEST_F(JsonSchema, WritesFractionsWithinAllSmallBounds) {
  for (int low = -23; low <= 123; low += 8) {
    for (int high = low; high <= 131; high += 9) {
      const std::string schema = R"({"type":"number","exclusiveMinimum":)" + tenths(low) +
                                 R"(,"maximum":)" + tenths(high) + "}";
      const auto opened = texts_.open(schema);
      ASSERT_EQ(opened.ok(), low < high) << schema;
      for (int number = -140; opened.ok() && number <= 140; ++number) {
        // A zero with a sign is never written.
        ASSERT_EQ(SchemaTexts::accepts(*opened, tenths(number)), low < number && number <= high)
            << tenths(number) << " " << schema;
        if (number % 10 == 0) {
          ASSERT_EQ(SchemaTexts::accepts(*opened, std::to_string(number / 10)),
                    low < number && number <= high)
              << number / 10 << " " << schema;
        }
      }
    }
  }
}

TEST_F(JsonSchema, EndsNumbers) {
  const std::string digits(20, '7');
  EXPECT_TRUE(texts_.accepts(R"({"type":"integer"})", digits));
  EXPECT_FALSE(texts_.accepts(R"({"type":"integer"})", digits + "7"));
  EXPECT_TRUE(texts_.accepts(R"({"type":"number"})", digits + "." + digits + "e-199"));
  EXPECT_FALSE(texts_.accepts(R"({"type":"number"})", "1." + digits + "7"));
  EXPECT_FALSE(texts_.accepts(R"({"type":"number"})", "1e200"));
  EXPECT_FALSE(texts_.accepts(R"({"type":"number"})", "01"));
  EXPECT_FALSE(texts_.accepts(R"({"type":"number"})", "1."));
}

TEST_F(JsonSchema, WritesEscapesButThoseOfSurrogates) {
  for (const char* text : {R"("\"\\\/\b\f\n\r\t")", R"("\u0000\u00e9\uD7FF\ue000\uFFFF")"})
    EXPECT_TRUE(texts_.accepts(R"({"type":"string"})", text)) << text;
  for (const char* text : {R"("\ud800")", R"("\uDFFF")", R"("\u12")", R"("\x41")", "\"\n\"",
                           "\"\x1f\"", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc3\""})
    EXPECT_FALSE(texts_.accepts(R"({"type":"string"})", text)) << text;
  EXPECT_TRUE(texts_.accepts(R"({"type":"string","maxLength":1})", R"("\u00e9")"));
}

TEST_F(JsonSchema, PatternsAllowNoSpaceThatEcmaScriptLeavesOut) {
  for (const char* pattern : {R"(^\\S+$)", R"(^[^\\s]+$)"}) {
    const std::string schema = R"({"type":"string","pattern":")" + std::string(pattern) + "\"}";
    EXPECT_TRUE(texts_.accepts(schema, "\"a\u00E9b\"")) << pattern;
    for (const char* text :
         {"\"a\u00A0b\"", "\"a\uFEFFb\"", "\"a\u3000b\"", "\"a b\"", R"("a\tb")"})
      EXPECT_FALSE(texts_.accepts(schema, text)) << pattern << " " << text;
  }
  constexpr auto kDots = R"({"type":"string","pattern":"^.+$"})";
  EXPECT_TRUE(texts_.accepts(kDots, "\"a\u00A0b\""));
  EXPECT_TRUE(texts_.accepts(kDots, R"("a\tb")"));
  for (const char* text : {"\"a\u2028b\"", "\"a\u2029b\"", R"("a\rb")", R"("a\nb")"})
    EXPECT_FALSE(texts_.accepts(kDots, text)) << text;
}

// As Zod 4 writes a format: with an expression of its own beside it.
TEST_F(JsonSchema, AFormatBesideAPatternIsAnAnnotation) {
  for (const char* schema :
       {R"({"type":"string","format":"date","pattern":"^\\d{4}-\\d{2}-\\d{2}$"})",
        R"({"type":"string","allOf":[{"format":"date"},{"pattern":"^\\d{4}-\\d{2}-\\d{2}$"}]})"}) {
    EXPECT_TRUE(texts_.accepts(schema, R"("2024-02-29")")) << schema;
    EXPECT_FALSE(texts_.accepts(schema, R"("2024-2-29")")) << schema;
  }
  constexpr auto kUuid =
      R"({"type":"string","format":"uuid","pattern":"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8])"
      R"([0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|0{8}-0{4}-0{4}-0{4}-0{12})$"})";
  EXPECT_TRUE(texts_.accepts(kUuid, R"("123e4567-e89b-42d3-a456-426614174000")"));
  EXPECT_FALSE(texts_.accepts(kUuid, R"("123e4567-e89b-92d3-a456-426614174000")"));
}

TEST_F(JsonSchema, AnAddressHasNoMoreCharactersThanMailAllows) {
  const std::string local =
      std::string(20, 'a') + "." + std::string(20, 'b') + "." + std::string(20, 'c') + "@";
  const auto address = [&](std::size_t label) {
    std::string text = "\"" + local;
    for (int i = 0; i < 3; ++i) text += std::string(label, 'd') + ".";
    return text + std::string(12, 'e') + "\"";
  };
  ASSERT_EQ(address(57).size(), 249U + 2);
  for (const char* schema : {R"({"type":"string","format":"email"})",
                             R"({"type":"string","format":"email","maxLength":254})"}) {
    EXPECT_TRUE(texts_.accepts(schema, R"("a.b@example.com")")) << schema;
    EXPECT_TRUE(texts_.accepts(schema, address(57))) << schema;
    EXPECT_FALSE(texts_.accepts(schema, address(63))) << schema;
  }
}

struct Refusal {
  const char* schema;
  const char* message;  // its beginning
};

const Refusal kRefusals[] = {
    {R"({"properties":{"a":{"not":{"type":"null"}}}})",
     "\"not\" at /properties/a is not supported"},
    {R"({"if":{},"then":{}})", "\"if\" at the top is not supported"},
    {R"({"items":{"uniqueItems":true}})", "\"uniqueItems\" at /items is not supported"},
    {R"({"type":"array","contains":{}})", "\"contains\" at the top is not supported"},
    {R"({"type":"number","multipleOf":0.5})", "\"multipleOf\" at the top is not supported"},
    {R"({"patternProperties":{"a":{}}})", "\"patternProperties\" at the top is not supported"},
    {R"({"propertyNames":{"maxLength":3}})", "\"propertyNames\" at the top is not supported"},
    {R"({"propertyNames":{"type":"string","pattern":"a"}})",
     "\"propertyNames\" at the top is not supported"},
    {R"({"propertyNames":{"type":["integer","null"]}})",
     "\"propertyNames\" at the top is not supported"},
    {R"({"propertyNames":{"type":["string","strin"]}})",
     "\"propertyNames\" at the top is not supported"},
    {R"({"propertyNames":false})", "\"propertyNames\" at the top is not supported"},
    {R"({"dependentRequired":{"a":["b"]}})", "\"dependentRequired\" at the top is not supported"},
    {R"({"dependentSchemas":{"a":{}}})", "\"dependentSchemas\" at the top is not supported"},
    {R"({"dependencies":{"a":["b"]}})", "\"dependencies\" at the top is not supported"},
    {R"({"unevaluatedProperties":false})", "\"unevaluatedProperties\" at the top is not supported"},
    {R"({"unevaluatedItems":false})", "\"unevaluatedItems\" at the top is not supported"},
    {R"({"$dynamicRef":"#a"})", "\"$dynamicRef\" at the top is not supported"},
    {R"({"$defs":{"x/y":{"not":{}}},"items":{"$ref":"#/$defs/x~1y"}})",
     "\"not\" at /$defs/x~1y is not supported"},
    {R"({"$ref":"https://example.com/a"})",
     "\"$ref\" at the top refers to \"https://example.com/a\""},
    {R"({"$ref":"#/$defs/none"})", "\"$ref\" at the top refers to \"#/$defs/none\", which is no"},
    {R"({"$ref":"#name"})", "\"$ref\" at the top refers to \"#name\"; only JSON pointers"},
    {R"({"$ref":"#"})", "\"$ref\" at the top refers to itself"},
    {R"({"properties":{"a":{"$id":"b"}}})",
     "\"$id\" at /properties/a is supported at the top only"},
    {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "\"oneOf\" at the top has branches"},
    {R"({"oneOf":[{"required":["a"]},{"required":["b"]}]})", "\"oneOf\" at the top has branches"},
    {R"({"oneOf":[]})", "\"oneOf\" at the top must have at least one schema"},
    {R"({"type":"strin"})", "\"type\" at the top must be the name of a type"},
    {R"({"properties":{"a":1}})", "\"properties\" at the top must be an object of schemas"},
    {R"({"minLength":-1})", "\"minLength\" at the top must be a whole number from 0"},
    {R"({"minimum":"1"})", "\"minimum\" at the top must be a number"},
    {R"({"minimum":18446744073709551617})", "\"minimum\" at the top must be a number"},
    {R"({"enum":[18446744073709551617]})", "\"enum\" at the top has a whole number beyond 64 bits"},
    {R"({"enum":["a"],"pattern":"a"})", "\"enum\" at the top is not supported beside a pattern"},
    {R"({"type":"string","pattern":"(a"})", "\"pattern\" at the top has "},
    {R"({"type":"string","pattern":"a","maxLength":3})",
     "\"pattern\" at the top is not supported beside minLength or maxLength"},
    {R"({"type":"string","format":"email","maxLength":100})",
     "\"format\" at the top is not supported beside minLength or maxLength that it does not keep"},
    {R"({"type":"string","allOf":[{"pattern":"a"},{"pattern":"b"}]})",
     "\"pattern\" at /allOf/1 is not supported beside another of its kind"},
    {R"({"type":"string","allOf":[{"format":"date"},{"format":"time"}]})",
     "\"format\" at /allOf/1 is not supported beside another of its kind"},
    {R"({"type":"object","maxProperties":3})",
     "\"maxProperties\" at the top is not supported where"},
    {R"({"type":"object","minProperties":3})", "\"minProperties\" at the top is above 1 and"},
    {R"({"items":{"minLength":10001}})", "\"minLength\" at /items is above the limit of 10000"},
    {R"({"type":"array","minItems":10001})", "\"minItems\" at the top is above the limit of 10000"},
    {R"([])", "a JSON Schema must be an object, true or false"},
    {R"({"type":"string","type":"null"})", "not valid JSON: key \"type\" appears twice"},
    {R"({"type":)", "not valid JSON: "},
};

TEST_F(JsonSchema, NamesWhatItRefusesAndWhere) {
  for (const Refusal& refusal : kRefusals) {
    const std::string message = texts_.refusal(refusal.schema);
    EXPECT_TRUE(message.starts_with(refusal.message)) << refusal.schema << ": " << message;
  }
}

TEST_F(JsonSchema, IgnoresRefusedKeywordsThatSayNothing) {
  for (const char* schema :
       {R"({"type":"integer","uniqueItems":true,"multipleOf":1,"patternProperties":{"a":{}}})",
        R"({"type":"integer","then":{"not":{}},"minProperties":9,"minContains":2})",
        R"({"type":"integer","$defs":{"a":{"not":{}}},"x-vendor":{"not":{}}})"})
    EXPECT_TRUE(texts_.accepts(schema, "7")) << schema;
  EXPECT_TRUE(texts_.accepts(R"({"type":"array","uniqueItems":true,"maxItems":1})", "[1]"));
  EXPECT_TRUE(texts_.accepts(R"({"type":"object","unevaluatedProperties":true})", "{}"));
  // Zod writes the first one for records.
  for (const char* names : {R"({"type":"string"})", R"({"type":["integer","string"],"title":"a"})",
                            R"({"description":"a key"})", "{}", "true"})
    EXPECT_TRUE(texts_.accepts(R"({"type":"object","propertyNames":)" + std::string(names) +
                                   R"(,"additionalProperties":{"type":"integer"}})",
                               R"({"a":1})"))
        << names;
}

TEST_F(JsonSchema, RefusesWhatAllowsNoText) {
  for (
      const char* schema :
      {"false", R"({"enum":[]})", R"({"type":"integer","minimum":2,"maximum":1})",
       R"({"type":"string","minLength":2,"maxLength":1})", R"({"type":"string","enum":[1]})",
       R"({"type":"array","items":false,"minItems":1})", R"({"allOf":[{"type":"null"},false]})",
       R"({"type":"object","properties":{"a":false},"required":["a"]})",
       R"({"$defs":{"a":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"required":["a"]}},
            "$ref":"#/$defs/a"})"}) {
    EXPECT_NE(texts_.refusal(schema), "none") << schema;
  }
}

std::string repeated(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

std::string object_of(int n, const std::string& value, const std::string& more) {
  std::string members;
  for (int i = 0; i < n; ++i)
    members += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":" + value;
  return R"({"type":"object","properties":{)" + members + "}" + more + "}";
}

// Each ends at once, with an error or not. What a hostile schema could make large: nesting, choices
// within choices, references that double, repetitions.
TEST_F(JsonSchema, EndsForHostileSchemas) {
  std::string doubling = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 400; ++i) {
    const std::string next = R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"}";
    doubling += "\"d" + std::to_string(i) + R"(":{"anyOf":[)" + next + "," + next +
                R"(],"minimum":)" + std::to_string(i) + "},";
  }
  doubling += R"("d400":{}}})";
  std::string chain = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < 400; ++i)
    chain += "\"" + std::to_string(i) + R"(":{"$ref":"#/$defs/)" + std::to_string(i + 1) + "\"},";
  chain += R"("400":{"type":"null"}}})";
  const std::string choices = repeated(R"({"anyOf":[{"minimum":1},{"maximum":2}]},)", 400);
  std::string deep = "true";
  for (int i = 0; i < 28; ++i) {
    deep = R"({"allOf":[)" + repeated(R"({"anyOf":[{"minItems":1}]},)", 39) + R"(true],"items":)" +
           deep + "}";
  }
  const std::string schemas[] = {
      deep,
      doubling,
      R"({"allOf":[)" + choices + "true]}",
      repeated(R"({"items":)", 63) + "true" + repeated("}", 63),
      repeated("[", 100'000),
      repeated(R"({"type":"array","minItems":9000,"maxItems":9999,"items":)", 12) + "true" +
          repeated("}", 12),
      R"({"type":"string","minLength":9999,"maxLength":4000000000})",
      R"({"type":"array","minItems":4000000000})",
      R"({"enum":[)" + repeated("1,", 30'000) + "1]}",
      R"({"oneOf":[)" + repeated("{\"const\":1},", 4'000) + "true]}",
      R"({"type":"array","prefixItems":[)" + repeated("true,", 9'000) + "true]}",
      R"({"properties":{")" + repeated("k", 60'000) + R"(":{}}})",
      object_of(500, R"({"type":"array"})", R"(,"additionalProperties":false)"),
      object_of(500, R"({})", ""),
      R"({"items":{"$ref":"#"},"properties":{"a":{"$ref":"#"}},"additionalProperties":{"$ref":"#"}})",
      R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})",
      R"({"type":"object","anyOf":[{"$ref":"#"},true]})",
      R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/c"},
          "c":{"$ref":"#/$defs/b"}}})",
      R"({"$ref":"#/%"})",
      R"({"$ref":"#/%ff%00"})",
  };
  for (const std::string& schema : schemas) texts_.refusal(schema);
  EXPECT_TRUE(texts_.accepts(chain, "null"));
}

// Members that are all optional: each is written about log2(n) times, not n times.
TEST_F(JsonSchema, StaysSmallForManyOptionalMembers) {
  const std::string schema =
      object_of(128, R"({"type":["integer","null"]})", R"(,"additionalProperties":false)");
  Expressions expressions;
  const auto whole = read_json_schema(schema, expressions);
  ASSERT_TRUE(whole.ok());
  const auto grammar = Grammar::compile(expressions, *whole);
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_LT((*grammar)->n_nodes(), 40'000u);
  EXPECT_TRUE(texts_.accepts(schema, R"({"k0":1,"k7":null,"k127":3})"));
  EXPECT_FALSE(texts_.accepts(schema, R"({"k7":1,"k0":null})"));
}

}  // namespace
}  // namespace foretoken
