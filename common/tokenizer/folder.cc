#include "common/tokenizer/folder.h"

#include <utility>

#include "common/base/file.h"
#include "common/base/utf8.h"
#include "common/tokenizer/limits.h"
#include "common/tokenizer/tokenizer_json.h"

namespace foretoken {
namespace {

namespace limits = tokenizer_limits;

constexpr std::string_view kTokenizerConfig = "tokenizer_config.json";
constexpr std::string_view kSpecialTokensMap = "special_tokens_map.json";
constexpr std::string_view kGenerationConfig = "generation_config.json";
constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kTemplateFile = "chat_template.jinja";

// An absent file reads as null.
Result<JsonTree> read_if_present(const std::filesystem::path& folder, std::string_view name) {
  Result<JsonTree> json = read_json_file(folder / name);
  if (!json.ok() && json.error().code == ErrorCode::kNotFound) return JsonTree{};
  return json;
}

// A token is a string, or an object with `content`.
Result<std::string> read_token(const JsonCursor& cursor) {
  if (!cursor.present()) return std::string();
  return cursor.is(JsonTree::Kind::kObject) ? cursor["content"].string() : cursor.string();
}

Result<std::string> template_of_list(const JsonCursor& list) {
  for (const JsonCursor& entry : list.elements()) {
    Result<std::string> name = entry["name"].string();
    if (!name.ok()) return name;
    Result<std::string> text = entry["template"].string();
    if (!text.ok()) return text;
    if (*name == "default") return text;
  }
  return list.error("an entry named \"default\"", "none");
}

Result<void> read_template(const std::filesystem::path& folder,
                           const JsonCursor& in_config,
                           FolderText& into) {
  Result<std::string> file = read_text_file(folder / kTemplateFile, limits::kMaxTemplateBytes);
  if (file.ok()) {
    if (const auto at = utf8::first_invalid(*file))
      return field_error(kTemplateFile, "", "UTF-8",
                         "a byte at " + std::to_string(*at) + " that is not");
    into.chat_template = std::move(*file);
    return {};
  }
  if (file.error().code != ErrorCode::kNotFound) return file.error();
  if (!in_config.present()) return {};
  Result<std::string> text =
      in_config.is(JsonTree::Kind::kArray) ? template_of_list(in_config) : in_config.string();
  if (!text.ok()) return text.error();
  if (text->size() > limits::kMaxTemplateBytes)
    return in_config.error("at most " + std::to_string(limits::kMaxTemplateBytes) + " bytes",
                           std::to_string(text->size()));
  into.chat_template = std::move(*text);
  return {};
}

Result<void> read_eos_ids(const JsonCursor& cursor, FolderText& into) {
  into.eos_file = std::string(cursor.file()) + ": " + cursor.path();
  if (!cursor.is(JsonTree::Kind::kArray)) {
    Result<std::int64_t> id = cursor.integer(0, limits::kMaxTokenId);
    if (!id.ok()) return id.error();
    into.eos_ids.push_back(*id);
    return {};
  }
  for (const JsonCursor& item : cursor.elements()) {
    Result<std::int64_t> id = item.integer(0, limits::kMaxTokenId);
    if (!id.ok()) return id.error();
    into.eos_ids.push_back(*id);
  }
  return {};
}

Result<std::optional<bool>> read_flag(const JsonCursor& cursor) {
  if (!cursor.present()) return std::optional<bool>();
  Result<bool> flag = cursor.boolean();
  if (!flag.ok()) return flag.error();
  return std::optional<bool>(*flag);
}

Result<void> read_tokens(const JsonCursor& config, const JsonCursor& map, FolderText& into) {
  const auto read = [&](std::string_view name, std::string& token) -> Result<void> {
    // A null in tokenizer_config.json means none; only an absent key lets the older file speak.
    const JsonCursor& source = config.value()->find(name) != nullptr ? config : map;
    Result<std::string> text = read_token(source[name]);
    if (!text.ok()) return text.error();
    token = std::move(*text);
    return {};
  };
  if (Result<void> bos = read("bos_token", into.bos_token); !bos.ok()) return bos;
  if (Result<void> eos = read("eos_token", into.eos_token); !eos.ok()) return eos;
  Result<std::optional<bool>> add_bos = read_flag(config["add_bos_token"]);
  if (!add_bos.ok()) return add_bos.error();
  Result<std::optional<bool>> add_eos = read_flag(config["add_eos_token"]);
  if (!add_eos.ok()) return add_eos.error();
  into.add_bos = *add_bos;
  into.add_eos = *add_eos;
  return {};
}

}  // namespace

Result<FolderText> read_folder_text(const std::filesystem::path& folder) {
  Result<JsonTree> tokenizer_config = read_if_present(folder, kTokenizerConfig);
  if (!tokenizer_config.ok()) return tokenizer_config.error();
  Result<JsonTree> token_map = read_if_present(folder, kSpecialTokensMap);
  if (!token_map.ok()) return token_map.error();
  Result<JsonTree> generation = read_if_present(folder, kGenerationConfig);
  if (!generation.ok()) return generation.error();
  Result<JsonTree> model = read_if_present(folder, kConfig);
  if (!model.ok()) return model.error();

  FolderText text;
  const JsonCursor config(kTokenizerConfig, &*tokenizer_config, "");
  if (Result<void> read = read_tokens(config, JsonCursor(kSpecialTokensMap, &*token_map, ""), text);
      !read.ok())
    return read.error();
  if (Result<void> read = read_template(folder, config["chat_template"], text); !read.ok())
    return read.error();
  const JsonCursor model_root(kConfig, &*model, "");
  for (const JsonCursor& eos :
       {JsonCursor(kGenerationConfig, &*generation, "")["eos_token_id"], model_root["eos_token_id"],
        model_root["text_config"]["eos_token_id"]}) {
    if (!eos.present()) continue;
    if (Result<void> read = read_eos_ids(eos, text); !read.ok()) return read.error();
    break;
  }
  return text;
}

}  // namespace foretoken
