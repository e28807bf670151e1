// Answers of the router -> OpenAI's bodies and events.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/utf8.h"
#include "services/edge/model_named.h"
#include "services/edge/openai.h"

namespace foretoken::edge {
namespace {

std::string event(const OrderedJson& body) { return "data: " + to_text(body) + "\n\n"; }

OrderedJson nullable(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

OrderedJson error_json(const HttpError& error) {
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", nullable(error.param)},
            {"code", nullable(error.code)}}}};
}

OrderedJson stop_reason_json(const wire::StopReason& reason) {
  if (const auto* id = std::get_if<TokenId>(&reason)) return *id;
  if (const auto* text = std::get_if<std::string>(&reason)) return *text;
  return nullptr;
}

// Of all answers to one request, up to what was delivered: each prompt counts once, whatever n is.
// The details are those of the answers that have ended.
class UsageSum {
 public:
  UsageSum(std::size_t n_choices, std::size_t n_per_prompt)
      : n_per_prompt_(n_per_prompt), prompts_(n_choices), completions_(n_choices) {}

  void add(std::size_t choice, const wire::ClientPiece& piece) {
    if (piece.prompt_tokens > 0) prompts_[choice / n_per_prompt_] = piece.prompt_tokens;
    completions_[choice] += piece.token_ids.size();
  }
  // The counts of a reply are those of the whole answer.
  void add(std::size_t choice, const wire::ClientReply& reply) {
    prompts_[choice / n_per_prompt_] = reply.usage.prompt_tokens;
    completions_[choice] = reply.usage.completion_tokens;
    if (choice % n_per_prompt_ == 0) cached_ += reply.usage.cached_tokens;
    const auto& speculation = reply.metrics.speculative_decoding;
    accepted_ += speculation.num_accepted_prediction_tokens;
    rejected_ += speculation.num_prediction_tokens - speculation.num_accepted_prediction_tokens;
  }
  void add_reasoning(std::uint32_t n_tokens) { reasoning_ += n_tokens; }

  OrderedJson json() const {
    const std::uint64_t prompt = sum(prompts_), completion = sum(completions_);
    return {{"prompt_tokens", prompt},
            {"completion_tokens", completion},
            {"total_tokens", prompt + completion},
            {"prompt_tokens_details", {{"cached_tokens", cached_}}},
            {"completion_tokens_details",
             {{"accepted_prediction_tokens", accepted_},
              {"rejected_prediction_tokens", rejected_},
              {"reasoning_tokens", reasoning_}}}};
  }

 private:
  static std::uint64_t sum(const std::vector<std::uint64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  }

  std::size_t n_per_prompt_;
  std::vector<std::uint64_t> prompts_;      // by prompt; 0 = not known yet
  std::vector<std::uint64_t> completions_;  // by choice
  std::uint64_t cached_ = 0, accepted_ = 0, rejected_ = 0, reasoning_ = 0;
};

OrderedJson logprob_json(const wire::LogprobEntry& entry) {
  return entry.logprob ? OrderedJson(*entry.logprob) : OrderedJson(nullptr);
}

// The likeliest tokens that were asked for, of those that a tokenizer has named.
std::size_t n_top_of(const wire::LogprobEntry& entry, std::size_t n_asked) {
  return std::min({n_asked, entry.top_ids.size(), entry.top_tokens.size(), entry.top_bytes.size()});
}

}  // namespace

OrderedJson metrics_json(const wire::ClientReply& reply) {
  const auto& m = reply.metrics;
  const auto& s = m.speculative_decoding;
  const auto n_gaps = reply.usage.completion_tokens > 1 ? reply.usage.completion_tokens - 1 : 1;
  return {{"time_to_first_token_ms", m.time_to_first_token_ms},
          {"generation_time_ms", m.generation_time_ms},
          {"queue_time_ms", m.queue_time_ms},
          {"mean_itl_ms", m.generation_time_ms / n_gaps},
          {"tokens_per_second", m.tokens_per_second},
          {"speculative_decoding",
           {{"mean_acceptance_length", s.mean_acceptance_length},
            {"draft_acceptance_rate", s.draft_acceptance_rate},
            {"acceptance_histogram", s.acceptance_histogram},
            {"acceptance_histogram_by_draft_length", s.acceptance_histogram_by_draft_length},
            {"num_spec_steps", s.num_spec_steps},
            {"num_accepted_draft_tokens", s.num_accepted_draft_tokens},
            {"num_draft_tokens", s.num_draft_tokens},
            {"num_spec_tokens", s.num_spec_tokens},
            {"proposer", s.proposer},
            {"fallback_reason", s.fallback_reason}}}};
}

OrderedJson logprobs_json(const std::vector<wire::LogprobEntry>& entries, std::size_t n_top) {
  OrderedJson content = OrderedJson::array();
  for (const auto& entry : entries) {
    OrderedJson top = OrderedJson::array();
    for (std::size_t i = 0; i < n_top_of(entry, n_top); ++i)
      top.push_back({{"token", entry.top_tokens[i]},
                     {"logprob", entry.top_logprobs[i]},
                     {"bytes", entry.top_bytes[i]}});
    content.push_back({{"token", entry.token},
                       {"logprob", logprob_json(entry)},
                       {"bytes", entry.bytes},
                       {"top_logprobs", std::move(top)}});
  }
  return content;
}

namespace {

// vLLM's form: null for the first token, then a map from ids, in which the prompt's own token
// stands first. Its rank is known among the likeliest that were asked for.
OrderedJson prompt_logprobs_json(const std::vector<wire::LogprobEntry>& prompt, std::size_t n_top) {
  OrderedJson list = OrderedJson::array();
  for (const auto& entry : prompt) {
    if (!entry.logprob) {
      list.push_back(nullptr);
      continue;
    }
    OrderedJson tokens = {
        {std::to_string(entry.token_id),
         {{"logprob", *entry.logprob}, {"rank", nullptr}, {"decoded_token", entry.token}}}};
    for (std::size_t i = 0; i < n_top_of(entry, n_top); ++i) {
      OrderedJson& token = tokens[std::to_string(entry.top_ids[i])];
      if (entry.top_ids[i] != entry.token_id)
        token = {{"logprob", entry.top_logprobs[i]}, {"decoded_token", entry.top_tokens[i]}};
      token["rank"] = i + 1;
    }
    list.push_back(std::move(tokens));
  }
  return list;
}

// What the two endpoints share: ids, usage, and the order of a stream.
class OpenAiEncoder : public Encoder {
 public:
  OpenAiEncoder(const OpenAiAsk& ask, std::string id, std::int64_t created)
      : ask_(static_cast<const OpenAiOptions&>(ask)),
        id_(std::move(id)),
        created_(created),
        has_ended_(ask.generation.choices.size()),
        usage_(ask.generation.choices.size(), ask.n) {}

  std::string error_body(const HttpError& error) const override { return openai_error_body(error); }
  std::string error_event(const HttpError& error) override { return event(error_json(error)); }

  std::string end() override {
    std::string events;
    if (ask_.include_usage) {
      OrderedJson chunk = head(chunk_object());
      chunk["choices"] = OrderedJson::array();
      chunk["usage"] = usage_.json();
      chunk["metrics"] = metrics_;
      events += event(chunk);
    }
    return events + "data: [DONE]\n\n";
  }

 protected:
  virtual const char* chunk_object() const = 0;

  OrderedJson head(const char* object) const {
    OrderedJson body = {{"id", id_},
                        {"object", object},
                        {"created", created_},
                        {"model", model_.empty() ? ask_.model : model_}};
    if (!fingerprint_.empty()) body["system_fingerprint"] = fingerprint_;
    return body;
  }
  OrderedJson whole_body(const char* object, OrderedJson choices) const {
    OrderedJson body = head(object);
    body["choices"] = std::move(choices);
    body["usage"] = usage_.json();
    body["metrics"] = metrics_;
    return body;
  }
  // Of one choice; usage goes with every chunk if it was asked for.
  std::string chunk(OrderedJson choice, const std::vector<TokenId>& prompt = {}) const {
    OrderedJson body = head(chunk_object());
    if (!prompt.empty()) body["prompt_token_ids"] = prompt;
    body["choices"] = OrderedJson::array({std::move(choice)});
    if (ask_.continuous_usage)
      body["usage"] = usage_.json();
    else if (ask_.include_usage)
      body["usage"] = nullptr;
    return event(body);
  }
  // What all chunks of a stream say alike: its first answers say it first.
  template <class PieceOrReply>
  void note_model(const PieceOrReply& of) {
    if (model_.empty()) model_ = of.model;
    if (fingerprint_.empty()) fingerprint_ = of.system_fingerprint;
  }
  // Before the chunks of a piece or a reply are written: they say the counts up to it.
  void note(std::size_t choice, const wire::ClientPiece& piece) {
    note_model(piece);
    usage_.add(choice, piece);
  }
  void note(std::size_t choice, const wire::ClientReply& reply) {
    note_model(reply);
    has_ended_[choice] = 1;
    usage_.add(choice, reply);
    if (choice == 0) metrics_ = metrics_json(reply);
  }

  void note_reasoning(std::uint32_t n_tokens) { usage_.add_reasoning(n_tokens); }
  // The first choice whose last chunk is still to come: behind that one no other may follow.
  std::size_t open_choice() const {
    const auto open = std::find(has_ended_.begin(), has_ended_.end(), 0);
    return static_cast<std::size_t>(open - has_ended_.begin());
  }

  // vLLM's fields of the prompt, beside those of a whole answer.
  void add_prompt(OrderedJson& body, const wire::ClientReply& reply) const {
    if (ask_.returns_token_ids) body["prompt_token_ids"] = reply.prompt_token_ids;
    if (ask_.n_prompt_logprobs >= 0)
      body["prompt_logprobs"] = prompt_logprobs_json(
          reply.prompt_logprobs, static_cast<std::size_t>(ask_.n_prompt_logprobs));
  }

  const OpenAiOptions ask_;  // without the requests, which are at the router

 private:
  std::string id_;
  std::int64_t created_;
  std::string model_, fingerprint_;
  std::vector<std::uint8_t> has_ended_;  // by choice
  UsageSum usage_;
  OrderedJson metrics_;
};

// The one name of a thought. Other servers name it `reasoning`, but an object with both is read
// wrongly: some clients join the two texts, others refuse it as one key that is given twice.
constexpr const char* kThoughtKey = "reasoning_content";

// One answer as a message: its events, joined.
struct ChatMessageParts {
  std::string content, reasoning;
  OrderedJson calls = OrderedJson::array();

  explicit ChatMessageParts(const AnswerEvents& events) {
    for (const AnswerEvent& event : events.list()) {
      if (const auto* text = std::get_if<TextEvent>(&event)) {
        content += text->text;
      } else if (const auto* thinking = std::get_if<ThinkingEvent>(&event)) {
        reasoning += thinking->text;
      } else if (const auto* call = std::get_if<CallBegin>(&event)) {
        calls.push_back({{"id", call->id},
                         {"type", "function"},
                         {"function", {{"name", call->name}, {"arguments", ""}}}});
      } else if (const auto* arguments = std::get_if<CallArguments>(&event)) {
        auto& joined = calls.back()["function"]["arguments"].get_ref<std::string&>();
        joined += arguments->text;
      }
    }
  }
  OrderedJson json() const {
    OrderedJson message = {{"role", "assistant"}, {"content", content}, {"refusal", nullptr}};
    if (content.empty() && (!calls.empty() || !reasoning.empty())) message["content"] = nullptr;
    if (!reasoning.empty()) message[kThoughtKey] = reasoning;
    if (!calls.empty()) message["tool_calls"] = calls;
    return message;
  }
};

// What a streamed answer says of one event; null: nothing.
OrderedJson chat_delta(const AnswerEvent& event) {
  if (const auto* text = std::get_if<TextEvent>(&event)) return {{"content", text->text}};
  if (const auto* thinking = std::get_if<ThinkingEvent>(&event))
    return {{kThoughtKey, thinking->text}};
  // Clients join the texts of all deltas of a call: its id, type and name are said once.
  OrderedJson call;
  if (const auto* begin = std::get_if<CallBegin>(&event))
    call = {{"index", begin->index},
            {"id", begin->id},
            {"type", "function"},
            {"function", {{"name", begin->name}, {"arguments", ""}}}};
  else if (const auto* arguments = std::get_if<CallArguments>(&event))
    call = {{"index", arguments->index}, {"function", {{"arguments", arguments->text}}}};
  else
    return nullptr;
  return {{"tool_calls", OrderedJson::array({std::move(call)})}};
}

class ChatEncoder final : public OpenAiEncoder {
 public:
  ChatEncoder(const OpenAiAsk& ask, std::string id, std::int64_t created)
      : OpenAiEncoder(ask, std::move(id), created), begun_(ask.generation.choices.size()) {
    for (const auto& request : ask.generation.choices) {
      AnswerRules rules = ask.rules;
      rules.key = answer_key(request);
      readers_.emplace_back(std::move(rules));
    }
  }

  std::string whole(const std::vector<wire::ClientReply>& replies) override {
    OrderedJson choices = OrderedJson::array();
    for (std::size_t i = 0; i < replies.size(); ++i) {
      const AnswerEvents events = readers_[i].on_reply(replies[i]);
      note(i, replies[i]);
      note_reasoning(readers_[i].n_reasoning_tokens());
      choices.push_back({{"index", i},
                         {"message", ChatMessageParts(events).json()},
                         {"logprobs", logprobs(replies[i].logprobs)},
                         {"finish_reason", readers_[i].finish_reason(replies[i])},
                         {"stop_reason", stop_reason_json(replies[i].stop_reason)}});
      if (ask_.returns_token_ids) choices.back()["token_ids"] = replies[i].token_ids;
    }
    OrderedJson body = whole_body("chat.completion", std::move(choices));
    add_prompt(body, replies.front());
    return to_text(body);
  }

  std::string on_piece(std::size_t choice, const wire::ClientPiece& piece) override {
    note(choice, piece);
    std::string events = role(choice, piece.prompt_token_ids);
    return events += deltas(choice, readers_[choice].on_piece(piece), piece, piece.accepted);
  }
  std::string on_reply(std::size_t choice, const wire::ClientReply& reply) override {
    note(choice, reply);
    std::string events = role(choice, reply.prompt_token_ids);
    events += deltas(choice, readers_[choice].on_reply(reply), reply, 0);
    note_reasoning(readers_[choice].n_reasoning_tokens());
    return events + chunk({{"index", choice},
                           {"delta", OrderedJson::object()},
                           {"logprobs", nullptr},
                           {"finish_reason", readers_[choice].finish_reason(reply)},
                           {"stop_reason", stop_reason_json(reply.stop_reason)}});
  }
  std::string ping() override { return empty_chunk(open_choice(), {}); }

 private:
  const char* chunk_object() const override { return "chat.completion.chunk"; }

  // First of each choice, with its first token. The prompt is said by the first piece alone.
  std::string role(std::size_t choice, const std::vector<TokenId>& prompt) {
    if (begun_[choice] != 0 && prompt.empty()) return {};
    return empty_chunk(choice, prompt);
  }
  // Without text. The first of a choice has the role, which clients need before all else; it is
  // said once, since some join the texts of all deltas.
  std::string empty_chunk(std::size_t choice, const std::vector<TokenId>& prompt) {
    OrderedJson delta = OrderedJson::object();
    if (std::exchange(begun_[choice], 1) == 0)
      delta = {{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}};
    return chunk({{"index", choice},
                  {"delta", std::move(delta)},
                  {"logprobs", nullptr},
                  {"finish_reason", nullptr}},
                 prompt);
  }
  // Of a piece, or of the reply that ends a stream. The first delta carries what is said of the
  // tokens. `accepted`: of these those that had been guessed; they come first.
  template <class Part>
  std::string deltas(std::size_t choice,
                     const AnswerEvents& events,
                     const Part& said,
                     std::uint32_t accepted) {
    std::vector<OrderedJson> all;
    for (const AnswerEvent& event : events.list())
      if (OrderedJson delta = chat_delta(event); !delta.is_null()) all.push_back(std::move(delta));
    const bool says_ids = ask_.reports_guesses || ask_.returns_token_ids;
    if (all.empty() &&
        ((says_ids && !said.token_ids.empty()) || (ask_.wants_logprobs && !said.logprobs.empty())))
      all.push_back({{"content", ""}});
    std::string chunks;
    for (std::size_t i = 0; i < all.size(); ++i) {
      OrderedJson part = {{"index", choice},
                          {"delta", std::move(all[i])},
                          {"logprobs", i == 0 ? logprobs(said.logprobs) : OrderedJson(nullptr)},
                          {"finish_reason", nullptr}};
      if (ask_.reports_guesses) part["accepted_tokens"] = i == 0 ? accepted : 0;
      if (says_ids) part["token_ids"] = i == 0 ? OrderedJson(said.token_ids) : OrderedJson::array();
      chunks += chunk(std::move(part));
    }
    return chunks;
  }
  OrderedJson logprobs(const std::vector<wire::LogprobEntry>& entries) const {
    if (!ask_.wants_logprobs) return nullptr;
    return {{"content", logprobs_json(entries, ask_.n_top_logprobs)}, {"refusal", nullptr}};
  }

  std::vector<std::uint8_t> begun_;
  std::vector<AnswerReader> readers_;
};

class CompletionEncoder final : public OpenAiEncoder {
 public:
  CompletionEncoder(const OpenAiAsk& ask, std::string id, std::int64_t created)
      : OpenAiEncoder(ask, std::move(id), created),
        begun_(ask.generation.choices.size()),
        offset_(ask.generation.choices.size()) {}

  std::string whole(const std::vector<wire::ClientReply>& replies) override {
    OrderedJson choices = OrderedJson::array();
    for (std::size_t i = 0; i < replies.size(); ++i) {
      note(i, replies[i]);
      const std::string before = echo(i, replies[i].prompt_logprobs);
      choices.push_back({{"index", i},
                         {"text", before + replies[i].text},
                         {"logprobs", logprobs(i, replies[i].prompt_logprobs, replies[i].logprobs)},
                         {"finish_reason", replies[i].finish_reason},
                         {"stop_reason", stop_reason_json(replies[i].stop_reason)}});
      if (ask_.returns_token_ids) choices.back()["token_ids"] = replies[i].token_ids;
      add_prompt(choices.back(), replies[i]);
    }
    return to_text(whole_body("text_completion", std::move(choices)));
  }

  std::string on_piece(std::size_t choice, const wire::ClientPiece& piece) override {
    note(choice, piece);
    const std::string text = echo(choice, piece.prompt_logprobs) + piece.text;
    return part(choice, text, logprobs(choice, piece.prompt_logprobs, piece.logprobs), piece);
  }
  std::string on_reply(std::size_t choice, const wire::ClientReply& reply) override {
    const std::string text = echo(choice, reply.prompt_logprobs) + reply.text;
    note(choice, reply);
    return part(choice, text, logprobs(choice, reply.prompt_logprobs, reply.logprobs), reply,
                &reply);
  }
  std::string ping() override {
    return chunk({{"index", open_choice()},
                  {"text", ""},
                  {"logprobs", nullptr},
                  {"finish_reason", nullptr}});
  }

 private:
  const char* chunk_object() const override { return "text_completion"; }

  // The prompt, before a choice's first text. One of token ids is the text of its tokens.
  std::string echo(std::size_t choice, const std::vector<wire::LogprobEntry>& prompt) {
    if (std::exchange(begun_[choice], 1) != 0 || !ask_.echo) return {};
    return utf8::text_of(prompt_bytes(choice, prompt));
  }
  // As it was given, or the bytes of its tokens: several may make one character.
  std::string prompt_bytes(std::size_t choice,
                           const std::vector<wire::LogprobEntry>& prompt) const {
    if (const auto& given = ask_.prompts[choice / ask_.n]) return *given;
    std::string bytes;
    for (const auto& entry : prompt) bytes.append(entry.bytes.begin(), entry.bytes.end());
    return bytes;
  }
  // With a reply it is the last one of its choice.
  template <class PieceOrReply>
  std::string part(std::size_t choice,
                   const std::string& text,
                   OrderedJson logprobs,
                   const PieceOrReply& of,
                   const wire::ClientReply* reply = nullptr) {
    const bool is_empty = text.empty() && (logprobs.is_null() || logprobs["tokens"].empty()) &&
                          (of.token_ids.empty() || !ask_.returns_token_ids);
    if (is_empty && reply == nullptr) return {};
    OrderedJson body = {{"index", choice},
                        {"text", text},
                        {"logprobs", std::move(logprobs)},
                        {"finish_reason", nullptr}};
    if (ask_.returns_token_ids) {
      body["token_ids"] = of.token_ids;
      if (!of.prompt_token_ids.empty()) body["prompt_token_ids"] = of.prompt_token_ids;
    }
    if (reply != nullptr) {
      body["finish_reason"] = reply->finish_reason;
      body["stop_reason"] = stop_reason_json(reply->stop_reason);
    }
    return chunk(std::move(body));
  }
  // Lists beside one another. The token itself stands in the map of the likeliest too: a reader
  // finds out by it whether the token was the likeliest.
  OrderedJson logprobs(std::size_t choice,
                       const std::vector<wire::LogprobEntry>& prompt,
                       const std::vector<wire::LogprobEntry>& answer) {
    if (!ask_.wants_logprobs) return nullptr;
    OrderedJson lists = {{"tokens", OrderedJson::array()},
                         {"token_logprobs", OrderedJson::array()},
                         {"top_logprobs", OrderedJson::array()},
                         {"text_offset", OrderedJson::array()}};
    // prompt_logprobs of a request bring the prompt's entries without it too
    if (ask_.echo && !prompt.empty()) add_echoed(lists, choice, prompt);
    for (const auto& entry : answer) {
      add(lists, choice, entry);
      offset_[choice] += n_characters(view_of(entry.bytes));
    }
    return lists;
  }
  void add_echoed(OrderedJson& lists,
                  std::size_t choice,
                  const std::vector<wire::LogprobEntry>& prompt) {
    const std::string bytes = prompt_bytes(choice, prompt);
    std::string_view rest = bytes;
    std::size_t n_before = n_before_text(bytes, prompt);
    for (const auto& entry : prompt) {
      add(lists, choice, entry);
      if (n_before > 0) {
        --n_before;
        continue;
      }
      const std::string_view token = view_of(entry.bytes);
      const std::size_t n = bytes_found(rest, token).value_or(std::min(token.size(), rest.size()));
      offset_[choice] += n_characters(rest.substr(0, n));
      rest.remove_prefix(n);
    }
    offset_[choice] += n_characters(rest);
  }
  // Bytes of a token at the beginning of what is left of a prompt's text, without the space that a
  // vocabulary puts before the first word; nothing where the text was normalised.
  static std::optional<std::size_t> bytes_found(std::string_view rest, std::string_view token) {
    if (rest.starts_with(token)) return token.size();
    if (token.starts_with(' ') && rest.starts_with(token.substr(1))) return token.size() - 1;
    return std::nullopt;
  }
  // Tokens that a vocabulary puts before every text, which are not in it.
  static std::size_t n_before_text(std::string_view text,
                                   const std::vector<wire::LogprobEntry>& prompt) {
    for (std::size_t i = 0; i < prompt.size(); ++i)
      if (bytes_found(text, view_of(prompt[i].bytes))) return i;
    return 0;
  }
  void add(OrderedJson& lists, std::size_t choice, const wire::LogprobEntry& entry) {
    lists["tokens"].push_back(entry.token);
    lists["token_logprobs"].push_back(logprob_json(entry));
    lists["text_offset"].push_back(offset_[choice]);
    OrderedJson top = nullptr;
    if (entry.logprob) {
      top = {{entry.token, *entry.logprob}};
      // Two ids may have one text, as those of half a character have: the likelier one stays.
      for (std::size_t i = 0; i < n_top_of(entry, ask_.n_top_logprobs); ++i) {
        OrderedJson& known = top[entry.top_tokens[i]];
        if (known.is_null() || known < entry.top_logprobs[i]) known = entry.top_logprobs[i];
      }
    }
    lists["top_logprobs"].push_back(std::move(top));
  }
  // Characters that begin in these bytes, as Python counts a text.
  static std::size_t n_characters(std::string_view bytes) {
    return static_cast<std::size_t>(std::count_if(bytes.begin(), bytes.end(), [](char byte) {
      return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
    }));
  }
  static std::string_view view_of(const std::vector<std::uint8_t>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::vector<std::uint8_t> begun_;
  std::vector<std::size_t> offset_;  // characters of the text before the next token
};

}  // namespace

std::unique_ptr<Encoder> chat_encoder(const OpenAiAsk& ask,
                                      const std::string& id,
                                      std::int64_t created) {
  return std::make_unique<ChatEncoder>(ask, "chatcmpl-" + id, created);
}

std::unique_ptr<Encoder> completion_encoder(const OpenAiAsk& ask,
                                            const std::string& id,
                                            std::int64_t created) {
  return std::make_unique<CompletionEncoder>(ask, "cmpl-" + id, created);
}

std::string openai_error_body(const HttpError& error) { return to_text(error_json(error)); }

Json openai_model(const std::string& name, const wire::ModelStatus& model, std::int64_t created) {
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "foretoken"},
          {"root", model.name},
          {"parent", nullptr},
          {"max_model_len", model.max_model_len}};
}

Json openai_models(const std::vector<wire::ModelStatus>& models, std::int64_t created) {
  Json data = Json::array();
  for (const auto& model : models) {
    if (model.n_targets == 0) continue;
    for (const auto& name : listed_names(model)) data.push_back(openai_model(name, model, created));
  }
  return {{"object", "list"}, {"data", std::move(data)}};
}

}  // namespace foretoken::edge
