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
constexpr std::string_view kToolTemplateFile = "additional_chat_templates/tool_use.jinja";
constexpr std::string_view kOtherTokens[] = {"unk_token", "sep_token", "pad_token", "cls_token",
                                             "mask_token"};

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

Result<std::string> template_in(const JsonCursor& cursor) {
  Result<std::string> text = cursor.string();
  if (text.ok() && text->size() > limits::kMaxTemplateBytes)
    return cursor.error("at most " + std::to_string(limits::kMaxTemplateBytes) + " bytes",
                        std::to_string(text->size()));
  return text;
}

Result<void> read_template_list(const JsonCursor& list, FolderText& into) {
  for (const JsonCursor& entry : list.elements()) {
    Result<std::string> name = entry["name"].string();
    if (!name.ok()) return name.error();
    if (*name != "default" && *name != "tool_use") continue;
    Result<std::string> text = template_in(entry["template"]);
    if (!text.ok()) return text.error();
    if (*name == "default") into.chat_template = std::move(*text);
    if (*name == "tool_use") into.tool_template = std::move(*text);
  }
  if (!into.chat_template) return list.error("an entry named \"default\"", "none");
  return {};
}

Result<std::optional<std::string>> read_template_file(const std::filesystem::path& folder,
                                                      std::string_view name) {
  Result<std::string> file = read_text_file(folder / name, limits::kMaxTemplateBytes);
  if (!file.ok() && file.error().code == ErrorCode::kNotFound) return std::optional<std::string>();
  if (!file.ok()) return file.error();
  if (const auto at = utf8::first_invalid(*file))
    return field_error(name, "", "UTF-8", "a byte at " + std::to_string(*at) + " that is not");
  return std::optional(std::move(*file));
}

// As in Transformers templates in files of their own replace those of the configuration.
Result<void> read_templates(const std::filesystem::path& folder,
                            const JsonCursor& in_config,
                            FolderText& into) {
  Result<std::optional<std::string>> file = read_template_file(folder, kTemplateFile);
  if (!file.ok()) return file.error();
  Result<std::optional<std::string>> tool_file = read_template_file(folder, kToolTemplateFile);
  if (!tool_file.ok()) return tool_file.error();
  if (*file) {
    into.chat_template = std::move(*file);
  } else if (in_config.is(JsonTree::Kind::kArray)) {
    if (Result<void> read = read_template_list(in_config, into); !read.ok()) return read;
  } else if (in_config.present()) {
    Result<std::string> text = template_in(in_config);
    if (!text.ok()) return text.error();
    into.chat_template = std::move(*text);
  }
  if (*tool_file) into.tool_template = std::move(*tool_file);
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

Result<void> add_special(const JsonCursor& cursor, FolderText& into) {
  Result<std::string> token = read_token(cursor);
  if (!token.ok()) return token.error();
  into.special_tokens.insert(std::move(*token));
  return {};
}

// The named ones are read by then.
Result<void> read_special_tokens(const JsonCursor& config,
                                 const JsonCursor& map,
                                 FolderText& into) {
  into.special_tokens = {into.bos_token, into.eos_token};
  for (const auto& [name, token] : into.other_tokens) into.special_tokens.insert(token);
  for (const JsonCursor* file : {&config, &map})
    for (const char* name : {"additional_special_tokens", "extra_special_tokens"})
      for (const JsonCursor& entry : (*file)[name].elements())
        if (Result<void> added = add_special(entry, into); !added.ok()) return added;
  const JsonCursor decoder = config["added_tokens_decoder"];
  if (!decoder.is(JsonTree::Kind::kObject)) return {};
  for (const JsonMember& member : decoder.value()->members) {
    const JsonCursor entry(decoder.file(), &member.value,
                           decoder.path() + "." + printable(member.name));
    Result<bool> special = entry["special"].boolean_or(false);
    if (!special.ok()) return special.error();
    if (!*special) continue;
    if (Result<void> added = add_special(entry, into); !added.ok()) return added;
  }
  return {};
}

Result<void> read_prefix_rules(const JsonCursor& config, FolderText& into) {
  Result<bool> legacy = config["legacy"].boolean_or(true);
  if (!legacy.ok()) return legacy.error();
  Result<bool> prefix = config["add_prefix_space"].boolean_or(true);
  if (!prefix.ok()) return prefix.error();
  into.legacy = *legacy;
  into.add_prefix_space = *prefix;
  return {};
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
  for (const std::string_view name : kOtherTokens) {
    std::string token;
    if (Result<void> other = read(name, token); !other.ok()) return other;
    if (!token.empty()) into.other_tokens.emplace_back(name, std::move(token));
  }
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
  const JsonCursor map(kSpecialTokensMap, &*token_map, "");
  if (Result<void> read = read_tokens(config, map, text); !read.ok()) return read.error();
  if (Result<void> read = read_special_tokens(config, map, text); !read.ok()) return read.error();
  if (Result<void> read = read_prefix_rules(config, text); !read.ok()) return read.error();
  if (Result<void> read = read_templates(folder, config["chat_template"], text); !read.ok())
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
