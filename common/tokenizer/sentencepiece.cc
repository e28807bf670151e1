#include "common/tokenizer/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "common/base/file.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/decode_pipeline.h"
#include "common/tokenizer/hash.h"
#include "common/tokenizer/limits.h"
#include "common/tokenizer/tokenizer_json.h"

namespace foretoken {
namespace {

namespace limits = tokenizer_limits;

constexpr std::string_view kModelFile = "tokenizer.model";
constexpr std::string_view kAddedFile = "added_tokens.json";
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr std::string_view kUnknownText =
    " \xE2\x81\x87 ";  // what sentencepiece writes for an unknown token

// One field of a protobuf message: a number, or the bytes of a string or of a message within.
struct ProtoField {
  std::uint64_t number = 0;
  std::uint64_t value = 0;
  std::string_view bytes;
};

std::optional<std::uint64_t> take_varint(std::string_view& message) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !message.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(message.front());
    message.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// The next field; nothing at the end, and at what is not a message.
std::optional<ProtoField> take_field(std::string_view& message) {
  const auto tag = take_varint(message);
  if (!tag) return std::nullopt;
  ProtoField field{.number = *tag >> 3};
  enum { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  const auto kind = *tag & 7;
  std::size_t length = kind == kFixed64 ? 8 : 4;
  if (kind == kVarint || kind == kBytes) {
    const auto value = take_varint(message);
    if (!value) return std::nullopt;
    field.value = *value;
    if (kind == kVarint) return field;
    length = static_cast<std::size_t>(*value);
  } else if (kind != kFixed64 && kind != kFixed32) {
    return std::nullopt;
  }
  if (length > message.size()) return std::nullopt;
  field.bytes = message.substr(0, length);
  message.remove_prefix(length);
  return field;
}

// What a model file says about text outside its pieces. The library acts on these and does not show
// them.
struct ModelFlags {
  bool adds_prefix = true;     // normalizer_spec.add_dummy_prefix
  bool removes_spaces = true;  // normalizer_spec.remove_extra_whitespaces
  bool denormalizes = false;   // denormalizer_spec has rules
};

ModelFlags read_flags(std::string_view model) {
  constexpr std::uint64_t kNormalizer = 3, kDenormalizer = 5;              // of ModelProto
  constexpr std::uint64_t kRules = 2, kDummyPrefix = 3, kExtraSpaces = 4;  // of NormalizerSpec
  ModelFlags flags;
  while (const auto outer = take_field(model)) {
    if (outer->number != kNormalizer && outer->number != kDenormalizer) continue;
    std::string_view spec = outer->bytes;
    while (const auto field = take_field(spec)) {
      if (outer->number == kDenormalizer) {
        flags.denormalizes =
            flags.denormalizes || (field->number == kRules && !field->bytes.empty());
      } else if (field->number == kDummyPrefix) {
        flags.adds_prefix = field->value != 0;
      } else if (field->number == kExtraSpaces) {
        flags.removes_spaces = field->value != 0;
      }
    }
  }
  return flags;
}

// sentencepiece's add_dummy_prefix: whether it puts a space before what it encodes.
enum class DummyPrefix : char { kNo = 0, kYes = 1 };

// The serialised model with another add_dummy_prefix, which the library has no call for. Protocol
// buffers merge a message that comes twice, and of a number the last one counts.
std::string with_prefix(std::string model, DummyPrefix prefix) {
  constexpr std::string_view kNormalizerSpec = "\x1A\x02";  // field 3, a message of two bytes
  constexpr char kAddDummyPrefix = '\x18';                  // field 3 of it, a number
  model.append(kNormalizerSpec).push_back(kAddDummyPrefix);
  model.push_back(static_cast<char>(prefix));
  return model;
}

Result<void> load_processor(const std::string& model,
                            sentencepiece::SentencePieceProcessor& processor) {
  const auto status = processor.LoadFromSerializedProto(model);
  if (status.ok()) return {};
  return field_error(kModelFile, "", "a sentencepiece model", printable(status.ToString()));
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  Result<void> load(const std::filesystem::path& folder, FolderText text) {
    Result<std::string> bytes = read_text_file(folder / kModelFile, limits::kMaxFileBytes);
    if (!bytes.ok()) return bytes.error();
    if (Result<void> done = load_processor(*bytes, processor_); !done.ok()) return done;
    ModelFlags flags = read_flags(*bytes);
    if (!text.legacy) {
      if (Result<void> done = choose_prefixes(*bytes, text, flags); !done.ok()) return done;
    }
    if (Result<void> done = number_pieces(); !done.ok()) return done;
    if (Result<void> done = add_tokens(folder / kAddedFile, text.special_tokens); !done.ok())
      return done;
    if (flags.denormalizes)
      return field_error(kModelFile, "denormalizer_spec", "no rules for decoded text",
                         "some, which are not supported", ErrorCode::kUnsupportedModel);
    set_decoder(flags);
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      if (tokens_[id].exists)
        tokens_[id].bytes = token_bytes_under(decoder_, decoder_input(static_cast<TokenId>(id)));
    if (Result<void> done = find_ends(text); !done.ok()) return done;
    chat_template_ = std::move(text.chat_template);
    tool_template_ = std::move(text.tool_template);
    name_unknown(text.other_tokens);
    name_tokens(std::move(text.other_tokens));
    compute_vocabulary_fingerprint();
    compute_text_fingerprint(StableHash()
                                 .add(*bytes)
                                 .add(vocabulary_fingerprint_)
                                 .add(std::uint64_t{without_prefix_ != nullptr})
                                 .add(std::uint64_t{starts_with_space_})
                                 .value(),
                             surround_);
    return {};
  }

  Result<std::vector<TokenId>> encode(std::string_view text, AddSpecialTokens add) const override {
    if (Result<void> fit = check_text(text); !fit.ok()) return fit.error();
    const bool special = add == AddSpecialTokens::kYes;
    std::vector<TokenId> ids;
    if (special) ids = surround_.before;
    std::vector<AddedTokenMatcher::Segment> segments;
    matcher_.split(text, segments);
    std::vector<int> part;
    for (const auto& segment : segments) {
      if (segment.token) {
        ids.push_back(*segment.token);
        continue;
      }
      const std::string_view stretch = text.substr(segment.begin, segment.end - segment.begin);
      const auto status = processor_for(stretch, segment.begin == 0).Encode(stretch, &part);
      if (!status.ok())
        return Error{ErrorCode::kInvalidValue,
                     "sentencepiece refuses the text: " + printable(status.ToString())};
      ids.insert(ids.end(), part.begin(), part.end());
    }
    if (special) ids.insert(ids.end(), surround_.after.begin(), surround_.after.end());
    return ids;
  }

  std::unique_ptr<DecodePipeline> make_decode_pipeline(TextBefore before) const override {
    return std::make_unique<DecodePipeline>(decoder_, before);
  }

  std::optional<TokenId> token_to_id(std::string_view text) const override {
    const auto it = ids_.find(std::string(text));
    return it == ids_.end() ? std::nullopt : std::optional(it->second);
  }

 private:
  // Where `legacy` is false. The flags become what tokenizer_config.json makes of them.
  Result<void> choose_prefixes(const std::string& model,
                               const FolderText& text,
                               ModelFlags& flags) {
    without_prefix_ = std::make_unique<sentencepiece::SentencePieceProcessor>();
    Result<void> done = load_processor(with_prefix(model, DummyPrefix::kNo), *without_prefix_);
    if (done.ok() && !flags.adds_prefix)
      done = load_processor(with_prefix(model, DummyPrefix::kYes), processor_);
    flags.adds_prefix = text.add_prefix_space;
    starts_with_space_ = flags.adds_prefix;
    removes_spaces_ = flags.removes_spaces;
    return done;
  }

  // Where `legacy` is false, only what begins a text gets a space, and only where it has none, as
  // in the tokenizers that Transformers makes of such a folder.
  const sentencepiece::SentencePieceProcessor& processor_for(std::string_view stretch,
                                                             bool begins_text) const {
    if (without_prefix_ == nullptr) return processor_;
    // A model that removes extra spaces removes a single one here, too.
    if (stretch.starts_with(' ')) return removes_spaces_ ? processor_ : *without_prefix_;
    const bool gets_space = begins_text && starts_with_space_ && !stretch.starts_with(kSpaceMark);
    return gets_space ? processor_ : *without_prefix_;
  }

  Result<void> number_pieces() {
    const int n_pieces = processor_.GetPieceSize();
    if (n_pieces <= 0 || n_pieces > limits::kMaxTokenId)
      return field_error(kModelFile, "pieces", "1 to " + std::to_string(limits::kMaxTokenId),
                         std::to_string(n_pieces));
    tokens_.resize(static_cast<std::size_t>(n_pieces));
    for (int id = 0; id < n_pieces; ++id) {
      if (processor_.IsUnused(id)) continue;
      Token& token = tokens_[static_cast<std::size_t>(id)];
      token.text = processor_.IdToPiece(id);
      token.exists = true;
      token.special = token.skipped = processor_.IsControl(id) || processor_.IsUnknown(id);
      if (processor_.IsUnknown(id)) token.decoded_as = kUnknownText;
      ids_.emplace(token.text, id);
      if (token.special)
        matcher_.add({.id = id, .content = token.text, .special = true}, token.text);
    }
    return {};
  }

  // added_tokens.json: content -> id, behind the model's own.
  Result<void> add_tokens(const std::filesystem::path& path,
                          const std::set<std::string, std::less<>>& special) {
    Result<JsonTree> added = read_json_file(path);
    if (!added.ok())
      return added.error().code == ErrorCode::kNotFound ? Result<void>() : added.error();
    for (const auto& [content, value] : added->members) {
      const JsonCursor cursor(kAddedFile, &value, printable(content));
      Result<std::int64_t> id = cursor.integer(0, limits::kMaxTokenId);
      if (!id.ok()) return id.error();
      const auto index = static_cast<std::size_t>(*id);
      if (content.empty() || content.size() > limits::kMaxTokenBytes)
        return cursor.error("a token", "an empty or long one");
      if (index >= tokens_.size()) tokens_.resize(index + 1);
      Token& token = tokens_[index];
      if (token.exists && token.text != content)
        return cursor.error("an id of its own", std::to_string(index) + ", which \"" +
                                                    printable(token.text) + "\" has");
      token.text = content;
      token.exists = token.added = true;
      if (special.contains(content)) token.special = token.skipped = true;
      ids_.insert_or_assign(content, static_cast<TokenId>(index));
      matcher_.add({.id = static_cast<TokenId>(index), .content = content}, content);
    }
    return {};
  }

  // Of a text that begins with spaces the library leaves out one if it put one there, all if it
  // removes extra ones.
  void set_decoder(const ModelFlags& flags) {
    decoder_.present = true;
    decoder_.steps = {
        decoder::SentencePiece{flags.removes_spaces ? decoder::LeadingSpaces::kAllStripped
                               : flags.adds_prefix  ? decoder::LeadingSpaces::kOneStripped
                                                    : decoder::LeadingSpaces::kKept}};
  }

  // As BOS and EOS it is the model's own where the folder does not name it.
  void name_unknown(NamedTokens& tokens) const {
    constexpr std::string_view kName = "unk_token";
    const bool is_named =
        std::ranges::find(tokens, kName, &NamedTokens::value_type::first) != tokens.end();
    if (!is_named && is_token(processor_.unk_id()))
      tokens.emplace_back(kName, token_text(processor_.unk_id()));
  }

  Result<void> find_ends(const FolderText& text) {
    const auto find = [this](std::string_view name, const std::string& token, int of_model,
                             std::optional<TokenId>& id) -> Result<void> {
      if (token.empty()) {
        if (is_token(of_model)) id = of_model;
        return {};
      }
      id = token_to_id(token);
      if (!id)
        return field_error("tokenizer_config.json", name, "a token of the model",
                           "\"" + printable(token) + "\"");
      return {};
    };
    if (Result<void> found = find("bos_token", text.bos_token, processor_.bos_id(), bos_id_);
        !found.ok())
      return found;
    if (Result<void> found = find("eos_token", text.eos_token, processor_.eos_id(), eos_token_id_);
        !found.ok())
      return found;
    // Models of this kind expect BOS.
    if (bos_id_ && text.add_bos.value_or(true)) surround_.before.push_back(*bos_id_);
    if (eos_token_id_ && text.add_eos.value_or(false)) surround_.after.push_back(*eos_token_id_);
    return set_eos(text.eos_ids, text.eos_file);
  }

  sentencepiece::SentencePieceProcessor processor_;
  // The one for stretches that get no space; none where `legacy` is not false. The two flags count
  // beside it alone.
  std::unique_ptr<sentencepiece::SentencePieceProcessor> without_prefix_;
  bool starts_with_space_ = true, removes_spaces_ = true;
  AddedTokenMatcher matcher_;
  DecoderSpec decoder_;
  std::unordered_map<std::string, TokenId> ids_;
  SurroundSpec surround_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_sentencepiece(const std::filesystem::path& folder,
                                                      FolderText text) {
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  if (Result<void> loaded = tokenizer->load(folder, std::move(text)); !loaded.ok())
    return loaded.error();
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace foretoken
