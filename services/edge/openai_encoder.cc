// Answers of the router -> OpenAI's bodies and events.
#include <algorithm>
#include <utility>

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

// Of all answers to one request: each prompt counts once, whatever n is.
struct UsageSum {
  std::uint64_t prompt = 0, completion = 0, cached = 0, accepted = 0, rejected = 0;

  void add(const wire::ClientReply& reply, bool is_first_of_prompt) {
    if (is_first_of_prompt)
      prompt += reply.usage.prompt_tokens, cached += reply.usage.cached_tokens;
    completion += reply.usage.completion_tokens;
    const auto& speculation = reply.metrics.speculative_decoding;
    if (speculation.proposer != "prediction") return;
    accepted += speculation.num_accepted_draft_tokens;
    rejected += speculation.num_draft_tokens - speculation.num_accepted_draft_tokens;
  }
  OrderedJson json() const {
    return {{"prompt_tokens", prompt},
            {"completion_tokens", completion},
            {"total_tokens", prompt + completion},
            {"prompt_tokens_details", {{"cached_tokens", cached}}},
            {"completion_tokens_details",
             {{"accepted_prediction_tokens", accepted},
              {"rejected_prediction_tokens", rejected},
              {"reasoning_tokens", 0}}}};
  }
};

// vLLM's keys for what one answer took, which benchmarks read.
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
            {"num_spec_steps", s.num_spec_steps},
            {"num_accepted_draft_tokens", s.num_accepted_draft_tokens},
            {"num_draft_tokens", s.num_draft_tokens},
            {"num_spec_tokens", s.num_spec_tokens},
            {"proposer", s.proposer},
            {"fallback_reason", s.fallback_reason}}}};
}

OrderedJson logprob_json(const wire::LogprobEntry& entry) {
  return entry.logprob ? OrderedJson(*entry.logprob) : OrderedJson(nullptr);
}

// What the two endpoints share: ids, usage, and the order of a stream.
class OpenAiEncoder : public Encoder {
 public:
  OpenAiEncoder(const OpenAiAsk& ask, std::string id, std::int64_t created)
      : ask_(ask),
        id_(std::move(id)),
        created_(created),
        n_completion_(ask.generation.choices.size()) {}

  std::string error_body(const HttpError& error) const override { return openai_error_body(error); }
  std::string error_event(const HttpError& error) const override {
    return event(error_json(error));
  }

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
  std::string chunk(OrderedJson choice) const {
    OrderedJson body = head(chunk_object());
    body["choices"] = OrderedJson::array({std::move(choice)});
    if (ask_.continuous_usage)
      body["usage"] = usage_.json();
    else if (ask_.include_usage)
      body["usage"] = nullptr;
    return event(body);
  }
  void note(std::size_t choice, const wire::ClientReply& reply) {
    model_ = reply.model;
    fingerprint_ = reply.system_fingerprint;
    usage_.add(reply, choice % ask_.n == 0);
    if (choice == 0) metrics_ = metrics_json(reply);
  }

  // The likeliest tokens that were asked for, of those that a tokenizer has named.
  std::size_t n_top_of(const wire::LogprobEntry& entry) const {
    return std::min({std::size_t{ask_.n_top_logprobs}, entry.top_ids.size(),
                     entry.top_tokens.size(), entry.top_bytes.size()});
  }

  const OpenAiAsk ask_;

 private:
  std::string id_;
  std::int64_t created_;
  std::vector<std::uint64_t> n_completion_;
  std::string model_, fingerprint_;
  UsageSum usage_;
  OrderedJson metrics_;
};

class ChatEncoder final : public OpenAiEncoder {
 public:
  ChatEncoder(const OpenAiAsk& ask, std::string id, std::int64_t created)
      : OpenAiEncoder(ask, std::move(id), created), begun_(ask.generation.choices.size()) {}

  std::string whole(const std::vector<wire::ClientReply>& replies) override {
    OrderedJson choices = OrderedJson::array();
    for (std::size_t i = 0; i < replies.size(); ++i) {
      note(i, replies[i]);
      choices.push_back(
          {{"index", i},
           {"message", {{"role", "assistant"}, {"content", replies[i].text}, {"refusal", nullptr}}},
           {"logprobs", logprobs(replies[i].logprobs)},
           {"finish_reason", replies[i].finish_reason},
           {"stop_reason", stop_reason_json(replies[i].stop_reason)}});
    }
    return to_text(whole_body("chat.completion", std::move(choices)));
  }

  std::string on_piece(std::size_t choice, const wire::ClientPiece& piece) override {
    return role(choice) + text(choice, piece.text, piece.logprobs, piece.accepted);
  }
  std::string on_reply(std::size_t choice, const wire::ClientReply& reply) override {
    std::string events = role(choice) + text(choice, reply.text, reply.logprobs);
    note(choice, reply);
    return events + chunk({{"index", choice},
                           {"delta", OrderedJson::object()},
                           {"logprobs", nullptr},
                           {"finish_reason", reply.finish_reason},
                           {"stop_reason", stop_reason_json(reply.stop_reason)}});
  }

 private:
  const char* chunk_object() const override { return "chat.completion.chunk"; }

  // First of each choice, with its first token.
  std::string role(std::size_t choice) {
    if (std::exchange(begun_[choice], 1) != 0) return {};
    return chunk({{"index", choice},
                  {"delta", {{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}}},
                  {"logprobs", nullptr},
                  {"finish_reason", nullptr}});
  }
  // `accepted`: of its tokens those that had been guessed; they come first.
  std::string text(std::size_t choice,
                   const std::string& text,
                   const std::vector<wire::LogprobEntry>& entries,
                   std::uint32_t accepted = 0) {
    if (text.empty() && (entries.empty() || !ask_.wants_logprobs)) return {};
    OrderedJson part = {{"index", choice},
                        {"delta", {{"content", text}}},
                        {"logprobs", logprobs(entries)},
                        {"finish_reason", nullptr}};
    if (ask_.reports_guesses) part["accepted_tokens"] = accepted;
    return chunk(std::move(part));
  }
  OrderedJson logprobs(const std::vector<wire::LogprobEntry>& entries) const {
    if (!ask_.wants_logprobs) return nullptr;
    OrderedJson content = OrderedJson::array();
    for (const auto& entry : entries) {
      OrderedJson top = OrderedJson::array();
      for (std::size_t i = 0; i < n_top_of(entry); ++i)
        top.push_back({{"token", entry.top_tokens[i]},
                       {"logprob", entry.top_logprobs[i]},
                       {"bytes", entry.top_bytes[i]}});
      content.push_back({{"token", entry.token},
                         {"logprob", logprob_json(entry)},
                         {"bytes", entry.bytes},
                         {"top_logprobs", std::move(top)}});
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }

  std::vector<std::uint8_t> begun_;
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
    }
    return to_text(whole_body("text_completion", std::move(choices)));
  }

  std::string on_piece(std::size_t choice, const wire::ClientPiece& piece) override {
    const std::string text = echo(choice, piece.prompt_logprobs) + piece.text;
    return part(choice, text, logprobs(choice, piece.prompt_logprobs, piece.logprobs));
  }
  std::string on_reply(std::size_t choice, const wire::ClientReply& reply) override {
    const std::string text = echo(choice, reply.prompt_logprobs) + reply.text;
    note(choice, reply);
    return part(choice, text, logprobs(choice, reply.prompt_logprobs, reply.logprobs), &reply);
  }

 private:
  const char* chunk_object() const override { return "text_completion"; }

  // The prompt, before a choice's first text. One of token ids is the text of its tokens.
  std::string echo(std::size_t choice, const std::vector<wire::LogprobEntry>& prompt) {
    if (std::exchange(begun_[choice], 1) != 0 || !ask_.echo) return {};
    const std::string& given = ask_.prompts[choice / ask_.n];
    if (!given.empty()) return given;
    std::string text;
    for (const auto& entry : prompt) text += entry.token;
    return text;
  }
  // With a reply it is the last one of its choice.
  std::string part(std::size_t choice,
                   const std::string& text,
                   OrderedJson logprobs,
                   const wire::ClientReply* reply = nullptr) {
    const bool is_empty = text.empty() && (logprobs.is_null() || logprobs["tokens"].empty());
    if (is_empty && reply == nullptr) return {};
    OrderedJson body = {{"index", choice},
                        {"text", text},
                        {"logprobs", std::move(logprobs)},
                        {"finish_reason", nullptr}};
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
    for (const auto* entries : {&prompt, &answer})
      for (const auto& entry : *entries) add(lists, choice, entry);
    return lists;
  }
  void add(OrderedJson& lists, std::size_t choice, const wire::LogprobEntry& entry) {
    lists["tokens"].push_back(entry.token);
    lists["token_logprobs"].push_back(logprob_json(entry));
    lists["text_offset"].push_back(offset_[choice]);
    offset_[choice] += n_characters(entry.bytes);
    OrderedJson top = nullptr;
    if (entry.logprob) {
      top = {{entry.token, *entry.logprob}};
      // Two ids may have one text: the likelier one, which comes first, stays.
      for (std::size_t i = 0; i < n_top_of(entry); ++i)
        if (!top.contains(entry.top_tokens[i])) top[entry.top_tokens[i]] = entry.top_logprobs[i];
    }
    lists["top_logprobs"].push_back(std::move(top));
  }
  // Characters that begin in these bytes, as Python counts a text.
  template <class Bytes>
  static std::size_t n_characters(const Bytes& bytes) {
    return static_cast<std::size_t>(std::count_if(bytes.begin(), bytes.end(), [](auto byte) {
      return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
    }));
  }

  std::vector<std::uint8_t> begun_;
  std::vector<std::size_t> offset_;  // of the next token that is listed: characters before it
};

}  // namespace

std::unique_ptr<Encoder> chat_encoder(const OpenAiAsk& ask, std::string id, std::int64_t created) {
  return std::make_unique<ChatEncoder>(ask, "chatcmpl-" + id, created);
}

std::unique_ptr<Encoder> completion_encoder(const OpenAiAsk& ask,
                                            std::string id,
                                            std::int64_t created) {
  return std::make_unique<CompletionEncoder>(ask, "cmpl-" + id, created);
}

std::string openai_error_body(const HttpError& error) { return to_text(error_json(error)); }

Json openai_model(const std::string& name, std::int64_t created) {
  return {{"id", name},   {"object", "model"}, {"created", created}, {"owned_by", "foretoken"},
          {"root", name}, {"parent", nullptr}};
}

Json openai_models(const std::vector<std::string>& names, std::int64_t created) {
  Json data = Json::array();
  for (const auto& name : names) data.push_back(openai_model(name, created));
  return {{"object", "list"}, {"data", std::move(data)}};
}

}  // namespace foretoken::edge
