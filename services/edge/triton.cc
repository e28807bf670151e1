#include "services/edge/triton.h"

#include <limits>
#include <map>
#include <utility>
#include <variant>

namespace foretoken::edge {
namespace {

using enum FieldUse;

constexpr Limit kEndIdLimit = from_to(-1, std::numeric_limits<TokenId>::max());
constexpr Limit kBeamsLimit = from_to(1, 1);

constexpr BodyField kTritonFields[] = {
    {"text_input", kHonoured, "", "the prompt; required"},
    {"max_tokens", kHonoured, "max_tokens", "required; at least 1; also as request_output_len"},
    {"request_output_len", kHonoured, "max_tokens"},
    {"bad_words", kHonoured, "", "a text or texts", "bad_words"},
    {"stop_words", kHonoured, "", "a text or texts; the one that ends the answer belongs to it",
     "stop"},
    {"end_id", kHonoured, "",
     "the token id that ends the answer in place of the model's, without its text; -1 = none", "",
     kEndIdLimit},
    {"temperature", kHonoured, "temperature",
     "randomness of the choice; 0 = greedy; without top_k and top_p no effect, and named as "
     "ignored"},
    {"top_k", kHonoured, "", "off, and top_p too: greedy, as TensorRT-LLM has it", "top_k"},
    {"top_p", kHonoured, "",
     "0 = off; else only the likeliest tokens that together have this probability", "top_p"},
    {"repetition_penalty", kHonoured, "repetition_penalty"},
    {"presence_penalty", kHonoured, "presence_penalty"},
    {"frequency_penalty", kHonoured, "frequency_penalty"},
    {"min_length", kHonoured, "min_tokens"},
    {"random_seed", kHonoured, "seed", kSeedNote},
    {"return_log_probs", kHonoured, "", "output_log_probs and cum_log_probs, with speculation too"},
    {"return_perf_metrics", kHonoured, "",
     "acceptance_rate, the counts of draft tokens, and times in ns since 1970; no counts of "
     "blocks"},
    {"stream", kHonoured, "", "true belongs to generate_stream"},
    {"num_draft_tokens", kHonoured, "num_draft_tokens",
     "most guessed tokens per round; 0 = no guesses; absent = as configured"},
    {"exclude_input_in_output", kHonoured, "",
     "false: text_output begins with the prompt; absent = edge.triton_exclude_input"},
    {"num_return_sequences", kHonoured, "",
     "answers, at most edge.max_choices; of several, text_output is a list, and events of a stream "
     "have sequence_index",
     "", kChoicesLimit},
    {"embedding_bias_words", kHonoured, "",
     "a text or texts, whose tokens get the weight beside them", "bad_words"},
    {"embedding_bias_weights", kHonoured, "", "a number or numbers, one for each word"},
    {"pad_id", kIgnored, "", "nothing is padded"},
    {"len_penalty", kIgnored, "", "of beam search alone"},
    {"length_penalty", kIgnored, "", "of beam search alone"},
    {"early_stopping", kIgnored, "", "of beam search alone"},
    {"beam_search_diversity_rate", kIgnored, "", "of beam search alone"},
    {"beam_width", kHonoured, "", "no beam search", "", kBeamsLimit},
    {"use_draft_logits", kRefused, "",
     "guesses are judged by the target's own token, so that the text is that without them"},
    {"draft_acceptance_threshold", kRefused, "",
     "a guess stands only if it is the target's own token"},
    {"draft_logits", kRefused, "", "drafts are services here"},
    {"draft_input_ids", kRefused, "", "use prediction of /v1/completions"},
    {"input_ids", kRefused, "", "use a prompt of token ids at /v1/completions"},
    {"guided_decoding_guide", kRefused, "", "use structured_outputs of /v1/completions"},
    {"guided_decoding_guide_type", kRefused, "", "use structured_outputs of /v1/completions"},
    {"kv_cache_retention_config", kRefused},
    {"return_generation_logits", kRefused, "", "use return_log_probs"},
    {"return_context_logits", kRefused},
    {"runtime_top_p_min", kRefused},
    {"runtime_top_p_decay", kRefused},
    {"runtime_top_p_reset_ids", kRefused},
    {"lora_task_id", kRefused},
    {"lora_weights", kRefused},
    {"lora_config", kRefused},
    {"prompt_embedding_table", kRefused},
    {"prompt_vocab_size", kRefused},
    {"decoder_text_input", kRefused},
    {"image_input", kRefused},
    {"stop", kRefused, "", "a client that closes its connection ends its request"},
};

// One object of the fields at the top and in "parameters"; a list of one counts as its entry.
Result<Json> flattened(const Json& body) {
  Json flat = Json::object();
  const auto add = [&](const Json& fields) -> Result<void> {
    for (const auto& [name, value] : fields.items()) {
      if (name == "parameters") continue;
      if (flat.contains(name))
        return Error{ErrorCode::kInvalidRequest, name + " is given twice", name};
      flat[name] = value.is_array() && value.size() == 1 ? value.front() : value;
    }
    return {};
  };
  if (const auto done = add(body); !done.ok()) return done.error();
  const Json* parameters = given(body, "parameters");
  if (parameters == nullptr) return flat;
  if (!parameters->is_object()) return invalid_value("parameters must be an object", "parameters");
  if (const auto done = add(*parameters); !done.ok()) return done.error();
  return flat;
}

// A text or texts; "" is none.
void move_words(const Json& body, const char* name, const char* key, Json& request) {
  const Json* words = given(body, name);
  if (words == nullptr || *words == "" || (words->is_array() && words->empty())) return;
  request[key] = *words;
}

// Of a temperature that goes no further: the router would have refused it.
Result<void> check_temperature(const Json& temperature) {
  const auto asked = router_request({{"prompt", "x"}, {"temperature", temperature}}, kTritonFields);
  if (!asked.ok()) return asked.error();
  return {};
}

// TensorRT-LLM's rule: without top_k and top_p the likeliest token is taken.
Result<void> read_sampling(const Json& body, Json& request, std::vector<std::string>& ignored) {
  const auto top_k = number(body, "top_k", limit_of("top_k"), 0);
  if (!top_k.ok()) return top_k.error();
  const Json top_p = body.value("top_p", Json(0));
  if (!top_p.is_null() && !top_p.is_number())
    return invalid_value("top_p must be a number", "top_p");
  const bool has_top_p = top_p.is_number() && top_p != 0;
  if (*top_k == 0 && !has_top_p) {
    if (const Json* temperature = given(body, "temperature"); temperature != nullptr) {
      if (const auto good = check_temperature(*temperature); !good.ok()) return good.error();
      if (*temperature != 0) ignored.emplace_back("temperature");
    }
    request["temperature"] = 0;
  } else {
    request["top_k"] = *top_k;
  }
  request["top_p"] = has_top_p ? top_p : Json(1);
  return {};
}

Result<void> read_end_id(const Json& body, Json& request) {
  if (given(body, "end_id") == nullptr) return {};
  const auto end_id = number(body, "end_id", kEndIdLimit, -1);
  if (!end_id.ok()) return end_id.error();
  request["ignore_eos"] = true;
  if (*end_id >= 0) request["stop_token_ids"] = Json::array({*end_id});
  return {};
}

// A text or number, or a list of them, as a list.
Json listed(const Json* value) {
  if (value == nullptr || *value == "") return Json::array();
  return value->is_array() ? *value : Json::array({*value});
}

Result<std::vector<BiasedWord>> read_biases(const Json& body) {
  const Json words = listed(given(body, "embedding_bias_words"));
  const Json weights = listed(given(body, "embedding_bias_weights"));
  if (words.size() != weights.size())
    return invalid_value("embedding_bias_words has " + std::to_string(words.size()) +
                             " entries and embedding_bias_weights " +
                             std::to_string(weights.size()) + "; each word needs one weight",
                         "embedding_bias_words");
  const Limit& limit = limit_of("bad_words");
  if (words.size() > limit.most)
    return invalid_value("embedding_bias_words has " + std::to_string(words.size()) +
                             " entries; the limit is " + std::to_string(limit.most),
                         "embedding_bias_words");
  std::vector<BiasedWord> biased;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!words[i].is_string() || words[i] == "" ||
        words[i].get_ref<const std::string&>().size() > limit.most_each)
      return invalid_value("embedding_bias_words must be texts of 1 to " +
                               std::to_string(limit.most_each) + " bytes",
                           "embedding_bias_words");
    if (!weights[i].is_number())
      return invalid_value("embedding_bias_weights must be numbers", "embedding_bias_weights");
    biased.push_back({words[i].get<std::string>(), weights[i].get<float>()});
  }
  return biased;
}

// The stop word that ended an answer belongs to it. The text of its end_id does not, so
// include_stop_str_in_output, which holds for both, is no way to ask for it.
std::string stop_word_of(const wire::ClientReply& reply) {
  const auto* word = std::get_if<std::string>(&reply.stop_reason);
  return word != nullptr ? *word : "";
}

// One reply or event has the text of one answer; with several, a reply has lists of them.
class TritonEncoder final : public Encoder {
 public:
  TritonEncoder(const TritonAsk& ask, std::int64_t arrived)
      : model_(ask.model),
        arrived_(arrived),
        wants_log_probs_(ask.wants_log_probs),
        wants_metrics_(ask.wants_metrics),
        prompt_(ask.includes_input ? ask.prompt : ""),
        answers_(ask.generation.choices.size()) {}

  std::string error_body(const HttpError& error) const override { return triton_error_body(error); }
  std::string error_event(const HttpError& error) override {
    return "data: " + triton_error_body(error) + "\n\n";
  }

  std::string whole(const std::vector<wire::ClientReply>& replies) override {
    if (replies.size() == 1) return to_text(last(0, replies.front()));
    OrderedJson all = body(replies.front().model, OrderedJson::array());
    for (std::size_t i = 0; i < replies.size(); ++i) {
      const OrderedJson one = last(i, replies[i]);
      for (const auto& [key, value] : one.items())
        if (!all.contains(key) || all[key].is_array()) all[key].push_back(value);
    }
    return to_text(all);
  }
  std::string on_piece(std::size_t choice, const wire::ClientPiece& piece) override {
    const std::string text = prompt_once(choice) + piece.text;
    note(choice, piece.logprobs);
    if (!piece.model.empty()) model_ = piece.model;
    if (text.empty()) return {};
    return event(choice, body(model_, text));
  }
  std::string on_reply(std::size_t choice, const wire::ClientReply& reply) override {
    return event(choice, last(choice, reply));
  }
  std::string end() override { return {}; }
  std::string ping() override { return event(0, body(model_, "")); }

 private:
  struct Answer {
    bool has_prompt = false;  // its first event or its reply has it
    std::vector<double> log_probs;
    double sum = 0;
  };

  std::string prompt_once(std::size_t choice) {
    return std::exchange(answers_[choice].has_prompt, true) ? "" : prompt_;
  }

  static OrderedJson body(const std::string& model, OrderedJson text) {
    return {{"model_name", model},           {"model_version", "1"},  {"sequence_id", 0},
            {"sequence_start", false},       {"sequence_end", false}, {"batch_index", 0},
            {"text_output", std::move(text)}};
  }
  std::string event(std::size_t choice, OrderedJson body) const {
    if (answers_.size() > 1) body["sequence_index"] = choice;
    return "data: " + to_text(body) + "\n\n";
  }
  void note(std::size_t choice, const std::vector<wire::LogprobEntry>& entries) {
    Answer& answer = answers_[choice];
    for (const auto& entry : entries) {
      answer.log_probs.push_back(entry.logprob.value_or(0));
      answer.sum += answer.log_probs.back();
    }
  }
  std::int64_t after(double milliseconds) const {
    return arrived_ + static_cast<std::int64_t>(milliseconds * 1e6);
  }
  OrderedJson last(std::size_t choice, const wire::ClientReply& reply) {
    note(choice, reply.logprobs);
    Answer& answer = answers_[choice];
    OrderedJson whole = body(reply.model, prompt_once(choice) + reply.text + stop_word_of(reply));
    if (wants_log_probs_) {
      whole["output_log_probs"] = answer.log_probs;
      whole["cum_log_probs"] = answer.sum;
    }
    if (wants_metrics_) {
      const auto& speculation = reply.metrics.speculative_decoding;
      whole["acceptance_rate"] = speculation.draft_acceptance_rate;
      whole["total_accepted_draft_tokens"] = speculation.num_accepted_draft_tokens;
      whole["total_draft_tokens"] = speculation.num_draft_tokens;
      const auto& times = reply.metrics;
      whole["arrival_time_ns"] = arrived_;
      whole["first_scheduled_time_ns"] = after(times.queue_time_ms);
      whole["first_token_time_ns"] = after(times.time_to_first_token_ms);
      whole["last_token_time_ns"] = after(times.time_to_first_token_ms + times.generation_time_ms);
    }
    return whole;
  }

  std::string model_;
  std::int64_t arrived_;
  bool wants_log_probs_, wants_metrics_;
  const std::string prompt_;
  std::vector<Answer> answers_;
};

}  // namespace

std::span<const BodyField> triton_fields() { return kTritonFields; }

Result<TritonAsk> read_triton(const Json& outer, const std::string& model, TritonRules rules) {
  const auto body = flattened(outer);
  if (!body.ok()) return body.error();
  auto sorted = sort_fields(*body, kTritonFields, rules.body.strict);
  if (!sorted.ok()) return sorted.error();
  TritonAsk ask;
  ask.ignored = std::move(sorted->ignored);
  Json request = std::move(sorted->request);
  const Json* text = given(*body, "text_input");
  if (text == nullptr)
    return Error{ErrorCode::kInvalidRequest, "text_input is required", "text_input"};
  if (!text->is_string())
    return invalid_value("text_input must be one text; several go to /v1/completions",
                         "text_input");
  if (!request.contains("max_tokens"))
    return Error{ErrorCode::kInvalidRequest, "max_tokens is required", "max_tokens"};
  for (const char* name : {"max_tokens", "request_output_len"})
    if (const auto length = number(*body, name, kAnswerTokens, 1); !length.ok())
      return length.error();
  const auto beams = number(*body, "beam_width", kBeamsLimit, 1);
  if (!beams.ok()) return beams.error();
  const auto in_stream = flag(*body, "stream", rules.stream);
  const auto without_input = flag(*body, "exclude_input_in_output", rules.excludes_input);
  const auto log_probs = flag(*body, "return_log_probs");
  const auto metrics = flag(*body, "return_perf_metrics");
  for (const auto* each : {&in_stream, &without_input, &log_probs, &metrics})
    if (!each->ok()) return each->error();
  if (*in_stream && !rules.stream)
    return invalid_value("stream is true: use generate_stream", "stream");
  if (const auto done = read_sampling(*body, request, ask.ignored); !done.ok()) return done.error();
  if (const auto done = read_end_id(*body, request); !done.ok()) return done.error();
  move_words(*body, "bad_words", "bad_words", request);
  move_words(*body, "stop_words", "stop", request);
  if (*log_probs) request["logprobs"] = 0;
  request["prompt"] = *text;
  if (!model.empty()) request["model"] = model;
  const auto n = n_choices(*body, "num_return_sequences", rules.body);
  if (!n.ok()) return n.error();
  auto biased = read_biases(*body);
  if (!biased.ok()) return biased.error();
  ask.biased_words = std::move(*biased);
  auto answers =
      router_requests({std::move(request), {Json::object()}, *n}, kTritonFields, rules.body);
  if (!answers.ok()) return answers.error();
  ask.model = model;
  ask.prompt = text->get<std::string>();
  ask.includes_input = !*without_input;
  ask.wants_log_probs = *log_probs;
  ask.wants_metrics = *metrics;
  ask.generation.stream = rules.stream;
  ask.generation.choices = std::move(*answers);
  return ask;
}

TritonPath triton_path(std::string_view path) {
  path.remove_prefix(std::string_view("/v2/models/").size());
  TritonPath parts;
  for (const char* verb : {"generate_stream", "generate", "infer", "ready", "stats", "config"})
    if (path.ends_with(std::string("/") + verb)) {
      parts.verb = verb;
      path.remove_suffix(parts.verb.size() + 1);
      break;
    }
  if (const auto version = path.rfind("/versions/"); version != std::string_view::npos)
    path = path.substr(0, version);
  parts.model = path;
  return parts;
}

std::string model_meant_by(const TritonPath& path) {
  const bool is_pipeline = path.model == "ensemble" || path.model == "tensorrt_llm_bls";
  return is_pipeline ? "default" : path.model;
}

wire::ClientRequest tokens_of_word(const BiasedWord& word, const std::string& model) {
  wire::ClientRequest request;
  request.op = wire::ClientOp::kTokenize;
  request.prompt_kind = wire::PromptKind::kText;
  request.prompt = word.text;
  request.model = model;
  request.add_special_tokens = false;
  request.given = {"prompt", "model", "add_special_tokens"};
  return request;
}

Result<void> add_biases(const std::vector<BiasedWord>& words,
                        const TokenLists& tokens,
                        std::vector<wire::ClientRequest>& requests) {
  std::map<TokenId, float> biases;
  for (std::size_t i = 0; i < words.size(); ++i)
    for (const TokenId id : tokens[i]) biases[id] += words[i].weight;
  for (wire::ClientRequest& request : requests) {
    request.params.logit_bias.assign(biases.begin(), biases.end());
    request.given.insert("logit_bias");
    if (const auto valid = validate(request.params, 0); !valid.ok())
      return Error{valid.error().code, "embedding_bias_weights: " + valid.error().message,
                   "embedding_bias_weights"};
  }
  return {};
}

std::unique_ptr<Encoder> triton_encoder(const TritonAsk& ask, std::int64_t arrived) {
  return std::make_unique<TritonEncoder>(ask, arrived);
}

std::string triton_error_body(const HttpError& error) {
  return to_text(OrderedJson{{"error", error.message}});
}

}  // namespace foretoken::edge
