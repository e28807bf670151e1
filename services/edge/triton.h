// Triton's generate endpoints with the fields of TensorRT-LLM's BLS backend, for clients that came
// from there: /v2/models/NAME/generate and generate_stream.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "services/edge/body_fields.h"
#include "services/edge/generation.h"

namespace foretoken::edge {

std::span<const BodyField> triton_fields();

struct TritonAsk {
  Generation generation;
  std::vector<std::string> ignored;
  std::string model;
  std::string prompt;
  bool includes_input = true;  // text_output begins with the prompt
  bool wants_log_probs = false;
  bool wants_metrics = false;
};

// `model` "" = the default one. Fields may stand in "parameters" too.
Result<TritonAsk> read_triton(const Json& body, const std::string& model, bool stream, bool strict);

// "/v2/models/a/b/versions/1/generate" -> the name "a/b" and what is asked of it.
struct TritonPath {
  std::string model, verb;
};
TritonPath triton_path(std::string_view path);

std::unique_ptr<Encoder> triton_encoder(const TritonAsk& ask);
std::string triton_error_body(const HttpError& error);

}  // namespace foretoken::edge
