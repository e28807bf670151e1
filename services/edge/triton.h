// Triton's generate endpoints with the fields of TensorRT-LLM's BLS backend, for clients that came
// from there: /v2/models/NAME/generate and generate_stream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "services/edge/body_fields.h"
#include "services/edge/generation.h"
#include "services/edge/router_request.h"

namespace foretoken::edge {

std::span<const BodyField> triton_fields();

// Texts whose tokens get a bias: they must be encoded before the requests are complete.
struct BiasedWord {
  std::string text;
  float weight = 0;
};

using TokenLists = std::vector<std::vector<TokenId>>;

struct TritonAsk {
  Generation generation;
  std::vector<std::string> ignored;
  std::string model;
  std::string prompt;
  bool includes_input = true;  // text_output begins with the prompt
  bool wants_log_probs = false;
  bool wants_metrics = false;
  std::vector<BiasedWord> biased_words;
};

struct TritonRules {
  bool stream = false;  // asked at generate_stream
  // text_output is the answer alone, unless the request says otherwise
  bool excludes_input = false;
  BodyRules body = {};
};
// `model` "" = the default one. Fields may stand in "parameters" too.
Result<TritonAsk> read_triton(const Json& body, const std::string& model, TritonRules rules);

// "/v2/models/a/b/versions/1/generate" -> the name "a/b" and what is asked of it.
struct TritonPath {
  std::string model, verb;
};
TritonPath triton_path(std::string_view path);
// The model that is meant: the names of the pipeline that clients of TensorRT-LLM ask for are the
// default one's.
std::string model_meant_by(const TritonPath& path);

// What asks for the tokens of one of them.
wire::ClientRequest tokens_of_word(const BiasedWord& word, const std::string& model);
// The biases of words whose tokens are known, in each request; a token of several words has their
// sum.
Result<void> add_biases(const std::vector<BiasedWord>& words,
                        const TokenLists& tokens,
                        std::vector<wire::ClientRequest>& requests);

// `arrived` in nanoseconds since 1970.
std::unique_ptr<Encoder> triton_encoder(const TritonAsk& ask, std::int64_t arrived);
std::string triton_error_body(const HttpError& error);

}  // namespace foretoken::edge
