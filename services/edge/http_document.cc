#include "services/edge/http_document.h"

#include <span>

#include "common/base/limit.h"
#include "services/edge/anthropic.h"
#include "services/edge/ollama.h"
#include "services/edge/openai.h"
#include "services/edge/request_keys.h"
#include "services/edge/responses.h"
#include "services/edge/triton.h"

namespace foretoken::edge {
namespace {

std::string_view words_for(FieldUse use) {
  return use == FieldUse::kHonoured  ? "honoured"
         : use == FieldUse::kIgnored ? "ignored"
                                     : "refused";
}

// What the router's own listing says about a key.
std::string sentence_of(std::string_view name) {
  const RequestKey* key = listed_key(name);
  if (key == nullptr) return {};
  return std::string(key->sentence) +
         (key->is_of_model ? "; absent = the model's generation_config" : "");
}

// A limit of the field's own, else that of its key.
std::string limit_of_field(const BodyField& field) {
  const RequestKey* key = listed_key(field.limit_key.empty() ? field.key : field.limit_key);
  std::string limit = limit_text(field.limit);
  return limit.empty() && key != nullptr ? limit_text(key->limit) : limit;
}

std::string section(const std::string& endpoint, std::span<const BodyField> fields) {
  std::string text = "\n## " + endpoint + "\n\n| field | use | |\n|---|---|---|\n";
  for (const BodyField& field : fields) {
    const std::string limit = limit_of_field(field);
    text += "| `" + std::string(field.name) + "` | " + std::string(words_for(field.use)) + " | " +
            (field.note.empty() ? sentence_of(field.key) : std::string(field.note)) +
            (limit.empty() ? "" : " (" + limit + ")") + " |\n";
  }
  return text;
}

}  // namespace

std::string http_document() {
  return "# Fields of HTTP requests\n\n"
         "Generated from the tables of `services/edge`; `FORETOKEN_UPDATE_GOLDEN=1` and "
         "`edge_test` write it anew. "
         "*Honoured* fields do what they\nsay; *ignored* ones change nothing and are named in the "
         "header `x-foretoken-ignored`; *refused* ones are an error that names them, if they\n"
         "say anything. A field that is not listed is ignored and named too, or refused with "
         "`edge.strict`. A `null` counts as not given.\n"
         "`tests/http/fields_test.py` sends every field to running services and sees what the "
         "page says. Endpoints that are not here take no\nfields.\n" +
         section("POST /v1/chat/completions", chat_fields()) +
         section("POST /v1/completions", completion_fields()) +
         section("POST /v1/responses", response_fields()) +
         section("POST /v1/messages", message_fields()) +
         section("POST /v1/messages/count_tokens", count_fields()) +
         section("POST /v2/models/NAME/generate, generate_stream", triton_fields()) +
         section("POST /tokenize", tokenize_fields()) +
         section("POST /detokenize", detokenize_fields()) +
         section("POST /api/show", show_fields());
}

}  // namespace foretoken::edge
