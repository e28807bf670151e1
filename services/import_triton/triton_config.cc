#include "services/import_triton/triton_config.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <memory>

#include "common/base/check.h"

namespace foretoken::import_triton {
namespace {

namespace pb = google::protobuf;

// Of Triton's ModelConfig what is read here, and what may hold a list of messages or an empty
// list, which the parser cannot skip. It skips and reports the rest.
constexpr const char* kTritonSchema = R"(
name: "model_config" syntax: "proto3"
message_type {
  name: "Value" field { name: "string_value" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }
message_type {
  name: "Parameter"
  field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".Value" label: LABEL_OPTIONAL } }
message_type {
  name: "QueuePolicy"
  field { name: "max_queue_size" number: 1 type: TYPE_UINT32 label: LABEL_OPTIONAL }
  field { name: "default_timeout_microseconds" number: 2 type: TYPE_UINT64 label: LABEL_OPTIONAL } }
message_type {
  name: "DynamicBatching"
  field { name: "default_queue_policy" number: 1 type: TYPE_MESSAGE type_name: ".QueuePolicy" label: LABEL_OPTIONAL } }
message_type {
  name: "Shape" field { name: "shape" number: 1 type: TYPE_INT64 label: LABEL_REPEATED } }
message_type {
  name: "Unread"
  field { name: "dims" number: 1 type: TYPE_INT64 label: LABEL_REPEATED }
  field { name: "reshape" number: 2 type: TYPE_MESSAGE type_name: ".Shape" label: LABEL_OPTIONAL }
  field { name: "gpus" number: 3 type: TYPE_INT32 label: LABEL_REPEATED } }
message_type {
  name: "Ensemble" field { name: "step" number: 1 type: TYPE_MESSAGE type_name: ".Unread" label: LABEL_REPEATED } }
message_type {
  name: "Sequences"
  field { name: "control_input" number: 1 type: TYPE_MESSAGE type_name: ".Unread" label: LABEL_REPEATED }
  field { name: "state" number: 2 type: TYPE_MESSAGE type_name: ".Unread" label: LABEL_REPEATED } }
message_type {
  name: "Accelerators"
  field { name: "gpu_execution_accelerator" number: 1 type: TYPE_MESSAGE type_name: ".Unread" label: LABEL_REPEATED }
  field { name: "cpu_execution_accelerator" number: 2 type: TYPE_MESSAGE type_name: ".Unread" label: LABEL_REPEATED } }
message_type {
  name: "Optimization"
  field { name: "execution_accelerators" number: 1 type: TYPE_MESSAGE type_name: ".Accelerators" label: LABEL_OPTIONAL } }
message_type {
  name: "ModelConfig"
  field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "platform" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "backend" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "max_batch_size" number: 4 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "parameters" number: 5 type: TYPE_MESSAGE type_name: ".Parameter" label: LABEL_REPEATED }
  field { name: "dynamic_batching" number: 6 type: TYPE_MESSAGE type_name: ".DynamicBatching" label: LABEL_OPTIONAL }
  field { name: "input" number: 7 type: TYPE_MESSAGE type_name: ".Unread" label: LABEL_REPEATED }
  field { name: "output" number: 8 type: TYPE_MESSAGE type_name: ".Unread" label: LABEL_REPEATED }
  field { name: "batch_input" number: 9 type: TYPE_MESSAGE type_name: ".Unread" label: LABEL_REPEATED }
  field { name: "batch_output" number: 10 type: TYPE_MESSAGE type_name: ".Unread" label: LABEL_REPEATED }
  field { name: "instance_group" number: 11 type: TYPE_MESSAGE type_name: ".Unread" label: LABEL_REPEATED }
  field { name: "model_warmup" number: 12 type: TYPE_MESSAGE type_name: ".Unread" label: LABEL_REPEATED }
  field { name: "ensemble_scheduling" number: 13 type: TYPE_MESSAGE type_name: ".Ensemble" label: LABEL_OPTIONAL }
  field { name: "sequence_batching" number: 14 type: TYPE_MESSAGE type_name: ".Sequences" label: LABEL_OPTIONAL }
  field { name: "optimization" number: 15 type: TYPE_MESSAGE type_name: ".Optimization" label: LABEL_OPTIONAL } }
)";
constexpr int kFirstUnread = 7;  // of ModelConfig's fields

// Each level is a call of the parser. Files for Triton have some six.
constexpr int kMostLevels = 64;

// The line of the first bracket that opens a level too many, from 1; 0: there is none.
int line_too_deep(std::string_view text) {
  int line = 1, level = 0;
  char quote = 0;
  bool is_comment = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
      quote = 0;  // no text goes over a line
      is_comment = false;
    } else if (is_comment) {
      continue;
    } else if (quote != 0) {
      if (c == '\\' && i + 1 < text.size() && text[i + 1] != '\n')
        ++i;
      else if (c == quote)
        quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      is_comment = true;
    } else if (c == '{' || c == '[' || c == '<') {
      if (++level > kMostLevels) return line;
    } else if (c == '}' || c == ']' || c == '>') {
      level = std::max(0, level - 1);
    }
  }
  return 0;
}

class TritonSchema {
 public:
  TritonSchema() : factory_(&pool_) {
    pb::FileDescriptorProto file;
    FORETOKEN_CHECK(pb::TextFormat::ParseFromString(kTritonSchema, &file));
    FORETOKEN_CHECK(pool_.BuildFile(file) != nullptr);
  }
  std::unique_ptr<pb::Message> new_config() {
    const pb::Descriptor* type = pool_.FindMessageTypeByName("ModelConfig");
    return std::unique_ptr<pb::Message>(factory_.GetPrototype(type)->New());
  }

 private:
  pb::DescriptorPool pool_;
  pb::DynamicMessageFactory factory_;
};

// The first error, and as warnings the fields that the schema lacks.
class ParseReports : public pb::io::ErrorCollector {
 public:
  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    if (error.empty())
      error = "line " + std::to_string(line + 1) + ", column " + std::to_string(column + 1) + ": " +
              message;
  }
  // Message type "ModelConfig" has no field named "version_policy".
  void AddWarning(int, pb::io::ColumnNumber, const std::string& message) override {
    constexpr std::string_view kNamed = "has no field named \"";
    const auto at = message.find(kNamed);
    // Inside what is not read nothing is worth naming.
    const bool is_read = message.find("\"ModelConfig\"") != std::string::npos ||
                         message.find("\"DynamicBatching\"") != std::string::npos ||
                         message.find("\"QueuePolicy\"") != std::string::npos;
    if (at == std::string::npos || !is_read) return;
    const auto begin = at + kNamed.size();
    std::string name = message.substr(begin, message.find('"', begin) - begin);
    if (std::find(skipped.begin(), skipped.end(), name) == skipped.end())
      skipped.push_back(std::move(name));
  }

  std::string error;
  std::vector<std::string> skipped;
};

// Reading by the names of the schema.
class MessageView {
 public:
  explicit MessageView(const pb::Message& message) : message_(message) {}

  std::string text(const char* name) const {
    return message_.GetReflection()->GetString(message_, field(name));
  }
  std::int64_t whole(const char* name) const {
    const pb::FieldDescriptor* of = field(name);
    const pb::Reflection* reflection = message_.GetReflection();
    switch (of->cpp_type()) {
      case pb::FieldDescriptor::CPPTYPE_INT32:
        return reflection->GetInt32(message_, of);
      case pb::FieldDescriptor::CPPTYPE_UINT32:
        return reflection->GetUInt32(message_, of);
      default:
        return static_cast<std::int64_t>(reflection->GetUInt64(message_, of));
    }
  }
  MessageView message(const char* name) const {
    return MessageView(message_.GetReflection()->GetMessage(message_, field(name)));
  }
  std::vector<MessageView> messages(const char* name) const {
    std::vector<MessageView> all;
    const pb::Reflection* reflection = message_.GetReflection();
    for (int i = 0; i < reflection->FieldSize(message_, field(name)); ++i)
      all.emplace_back(reflection->GetRepeatedMessage(message_, field(name), i));
    return all;
  }

 private:
  const pb::FieldDescriptor* field(const char* name) const {
    const pb::FieldDescriptor* of = message_.GetDescriptor()->FindFieldByName(name);
    FORETOKEN_CHECK(of != nullptr);
    return of;
  }

  const pb::Message& message_;
};

}  // namespace

Result<TritonConfig> parse_triton_config(std::string_view text) {
  if (const int line = line_too_deep(text); line > 0)
    return Error{ErrorCode::kMalformed, "line " + std::to_string(line) + ": more than " +
                                            std::to_string(kMostLevels) + " brackets are open"};
  TritonSchema schema;
  const auto message = schema.new_config();
  ParseReports reports;
  pb::TextFormat::Parser parser;
  parser.AllowUnknownField(true);
  parser.RecordErrorsTo(&reports);
  if (!parser.ParseFromString(std::string(text), message.get())) {
    const bool is_template = reports.error.find('$') != std::string::npos;
    return Error{ErrorCode::kMalformed,
                 reports.error + (is_template ? "; ${...} must be filled in first, as by "
                                                "tools/fill_template.py of TensorRT-LLM's backend"
                                              : "")};
  }
  std::vector<const pb::FieldDescriptor*> given;
  message->GetReflection()->ListFields(*message, &given);
  for (const pb::FieldDescriptor* field : given)
    if (field->number() >= kFirstUnread) reports.skipped.push_back(field->name());
  const MessageView view(*message);
  TritonConfig config{.name = view.text("name"),
                      .backend = view.text("backend"),
                      .max_batch_size = view.whole("max_batch_size"),
                      .skipped = std::move(reports.skipped)};
  if (config.backend.empty()) config.backend = view.text("platform");
  for (const MessageView& parameter : view.messages("parameters"))
    config.parameters.emplace_back(parameter.text("key"),
                                   parameter.message("value").text("string_value"));
  const MessageView policy = view.message("dynamic_batching").message("default_queue_policy");
  config.max_queue_size = static_cast<std::uint64_t>(policy.whole("max_queue_size"));
  config.timeout_us = static_cast<std::uint64_t>(policy.whole("default_timeout_microseconds"));
  return config;
}

}  // namespace foretoken::import_triton
