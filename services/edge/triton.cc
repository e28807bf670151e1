#include "services/edge/triton.h"

#include <utility>

#include "services/edge/router_request.h"

namespace foretoken::edge {
namespace {

using enum FieldUse;

constexpr BodyField kTritonFields[] = {
    {"text_input", kHonoured, "", "the prompt; required"},
    {"max_tokens", kHonoured, "max_tokens", "required; also as request_output_len"},
    {"request_output_len", kHonoured, "max_tokens"},
    {"bad_words", kHonoured, "", "a text or texts"},
    {"stop_words", kHonoured, "", "a text or texts; the one that ends the answer belongs to it"},
    {"end_id", kHonoured, "",
     "the token id that ends the answer in place of the model's; -1 = none"},
    {"temperature", kHonoured, "temperature"},
    {"top_k", kHonoured, "", "with top_p 0 or absent too: greedy, as TensorRT-LLM has it"},
    {"top_p", kHonoured, "", "0 = off"},
    {"repetition_penalty", kHonoured, "repetition_penalty"},
    {"presence_penalty", kHonoured, "presence_penalty"},
    {"frequency_penalty", kHonoured, "frequency_penalty"},
    {"min_length", kHonoured, "min_tokens"},
    {"random_seed", kHonoured, "seed"},
    {"return_log_probs", kHonoured, "", "output_log_probs and cum_log_probs, with speculation too"},
    {"return_perf_metrics", kHonoured, "", "acceptance_rate and the counts of draft tokens"},
    {"stream", kHonoured, "", "true belongs to generate_stream"},
    {"num_draft_tokens", kHonoured, "num_draft_tokens", "0 = no guesses; absent = as configured"},
    {"exclude_input_in_output", kHonoured, "", "false: text_output begins with the prompt"},
    {"num_return_sequences", kRefused, "", "use n of /v1/completions"},
    {"pad_id", kIgnored, "", "nothing is padded"},
    {"len_penalty", kIgnored, "", "of beam search alone"},
    {"length_penalty", kIgnored, "", "of beam search alone"},
    {"early_stopping", kIgnored, "", "of beam search alone"},
    {"beam_search_diversity_rate", kIgnored, "", "of beam search alone"},
    {"beam_width", kHonoured, "", "1; others are refused"},
    {"use_draft_logits", kRefused, "",
     "guesses are judged by the target's own token, so that the text is that without them"},
    {"draft_acceptance_threshold", kRefused, "",
     "a guess stands only if it is the target's own token"},
    {"draft_logits", kRefused, "", "drafts are services here"},
    {"draft_input_ids", kRefused, "", "use prediction of /v1/completions"},
    {"input_ids", kRefused, "", "use a prompt of token ids at /v1/completions"},
    {"guided_decoding_guide", kRefused},
    {"guided_decoding_guide_type", kRefused},
    {"return_generation_logits", kRefused, "", "use return_log_probs"},
    {"return_context_logits", kRefused},
    {"embedding_bias_words", kRefused, "", "use logit_bias of /v1/completions"},
    {"embedding_bias_weights", kRefused, "", "use logit_bias of /v1/completions"},
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

// TensorRT-LLM's rule: without top_k and top_p the likeliest token is taken.
Result<void> read_sampling(const Json& body, Json& request) {
  const auto top_k = number(body, "top_k", 0, 0x7fffffff, 0);
  if (!top_k.ok()) return top_k.error();
  const Json top_p = body.value("top_p", Json(0));
  if (!top_p.is_null() && !top_p.is_number())
    return invalid_value("top_p must be a number", "top_p");
  const bool has_top_p = top_p.is_number() && top_p != 0;
  if (*top_k == 0 && !has_top_p)
    request["temperature"] = 0;
  else
    request["top_k"] = *top_k;
  request["top_p"] = has_top_p ? top_p : Json(1);
  return {};
}

Result<void> read_end_id(const Json& body, Json& request) {
  if (given(body, "end_id") == nullptr) return {};
  const auto end_id = number(body, "end_id", -1, 0x7fffffff, -1);
  if (!end_id.ok()) return end_id.error();
  request["ignore_eos"] = true;
  if (*end_id >= 0) request["stop_token_ids"] = Json::array({*end_id});
  return {};
}

class TritonEncoder final : public Encoder {
 public:
  explicit TritonEncoder(const TritonAsk& ask)
      : model_(ask.model),
        prompt_(ask.includes_input ? ask.prompt : ""),
        wants_log_probs_(ask.wants_log_probs),
        wants_metrics_(ask.wants_metrics) {}

  std::string error_body(const HttpError& error) const override { return triton_error_body(error); }
  std::string error_event(const HttpError& error) const override {
    return "data: " + triton_error_body(error) + "\n\n";
  }

  std::string whole(const std::vector<wire::ClientReply>& replies) override {
    return to_text(last(replies.front(), prompt_));
  }
  std::string on_piece(std::size_t /*choice*/, const wire::ClientPiece& piece) override {
    const std::string text = std::exchange(prompt_, {}) + piece.text;
    note(piece.logprobs);
    if (text.empty()) return {};
    return "data: " + to_text(body(model_, text)) + "\n\n";
  }
  std::string on_reply(std::size_t /*choice*/, const wire::ClientReply& reply) override {
    return "data: " + to_text(last(reply, std::exchange(prompt_, {}))) + "\n\n";
  }
  std::string end() override { return {}; }

 private:
  static OrderedJson body(const std::string& model, const std::string& text) {
    return {{"model_name", model},     {"model_version", "1"},  {"sequence_id", 0},
            {"sequence_start", false}, {"sequence_end", false}, {"batch_index", 0},
            {"text_output", text}};
  }
  void note(const std::vector<wire::LogprobEntry>& entries) {
    for (const auto& entry : entries) {
      log_probs_.push_back(entry.logprob.value_or(0));
      sum_ += log_probs_.back();
    }
  }
  OrderedJson last(const wire::ClientReply& reply, const std::string& before) {
    note(reply.logprobs);
    OrderedJson whole = body(reply.model, before + reply.text);
    if (wants_log_probs_) {
      whole["output_log_probs"] = log_probs_;
      whole["cum_log_probs"] = sum_;
    }
    if (wants_metrics_) {
      const auto& speculation = reply.metrics.speculative_decoding;
      whole["acceptance_rate"] = speculation.draft_acceptance_rate;
      whole["total_accepted_draft_tokens"] = speculation.num_accepted_draft_tokens;
      whole["total_draft_tokens"] = speculation.num_draft_tokens;
    }
    return whole;
  }

  std::string model_, prompt_;
  bool wants_log_probs_, wants_metrics_;
  std::vector<double> log_probs_;
  double sum_ = 0;
};

}  // namespace

std::span<const BodyField> triton_fields() { return kTritonFields; }

Result<TritonAsk> read_triton(const Json& outer,
                              const std::string& model,
                              bool stream,
                              bool strict) {
  const auto body = flattened(outer);
  if (!body.ok()) return body.error();
  auto sorted = sort_fields(*body, kTritonFields, strict);
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
  const auto beams = number(*body, "beam_width", 1, 1, 1);
  if (!beams.ok()) return beams.error();
  const auto in_stream = flag(*body, "stream", stream);
  const auto without_input = flag(*body, "exclude_input_in_output");
  const auto log_probs = flag(*body, "return_log_probs");
  const auto metrics = flag(*body, "return_perf_metrics");
  for (const auto* each : {&in_stream, &without_input, &log_probs, &metrics})
    if (!each->ok()) return each->error();
  if (*in_stream && !stream) return invalid_value("stream is true: use generate_stream", "stream");
  if (const auto done = read_sampling(*body, request); !done.ok()) return done.error();
  if (const auto done = read_end_id(*body, request); !done.ok()) return done.error();
  move_words(*body, "bad_words", "bad_words", request);
  move_words(*body, "stop_words", "stop", request);
  request["include_stop_str_in_output"] = true;
  if (*log_probs) request["logprobs"] = 0;
  request["prompt"] = *text;
  if (!model.empty()) request["model"] = model;
  auto whole = router_request(request, kTritonFields);
  if (!whole.ok()) return whole.error();
  ask.model = model;
  ask.prompt = text->get<std::string>();
  ask.includes_input = !*without_input;
  ask.wants_log_probs = *log_probs;
  ask.wants_metrics = *metrics;
  ask.generation.stream = stream;
  ask.generation.choices.push_back(std::move(*whole));
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

std::unique_ptr<Encoder> triton_encoder(const TritonAsk& ask) {
  return std::make_unique<TritonEncoder>(ask);
}

std::string triton_error_body(const HttpError& error) {
  return to_text(OrderedJson{{"error", error.message}});
}

}  // namespace foretoken::edge
