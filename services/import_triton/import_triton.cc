#include "services/import_triton/import_triton.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "common/base/json.h"
#include "common/config/load.h"
#include "common/config/resolve.h"

namespace foretoken::import_triton {
namespace {

// A value as `--set` takes it and as TOML has it.
struct ImportedValue {
  std::string setting;
  std::string toml;
};
using ImportConversion = std::optional<ImportedValue> (*)(const std::string&);

// For a comment.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

ImportedValue text_value(const std::string& text) { return {text, to_text(Json(text))}; }

std::optional<double> import_number(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<ImportedValue> same_value(const std::string& text) { return text_value(text); }

std::optional<ImportedValue> whole_value(const std::string& text) {
  const auto number = import_number(text);
  if (!number || !(*number >= 1 && *number <= 1e9)) return std::nullopt;
  const std::string digits = std::to_string(static_cast<std::int64_t>(*number));
  return ImportedValue{digits, digits};
}

std::optional<ImportedValue> tokens_value(const std::string& text) {
  const auto n = whole_value(text);
  if (!n) return std::nullopt;
  return text_value(n->setting + " tokens");
}

std::optional<ImportedValue> share_value(const std::string& text) {
  const auto part = import_number(text);
  if (!part || !(*part > 0 && *part <= 1)) return std::nullopt;  // NaN is no share
  return text_value(std::to_string(static_cast<int>(*part * 100 + 0.5)) + "%");
}

std::optional<ImportedValue> truth_value(const std::string& text) {
  if (text == "true" || text == "True" || text == "1") return ImportedValue{"true", "true"};
  if (text == "false" || text == "False" || text == "0") return ImportedValue{"false", "false"};
  return std::nullopt;
}

std::string without_outer_spaces(const std::string& text) {
  const auto begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// "0, 1" -> "cuda:0,1"
std::string device_of(const std::string& ids) {
  std::string device = "cuda:";
  for (std::size_t at = 0; at <= ids.size();) {
    const std::size_t end = std::min(ids.find(',', at), ids.size());
    device += (at > 0 ? "," : "") + without_outer_spaces(ids.substr(at, end - at));
    at = end + 1;
  }
  return device;
}

std::optional<ImportedValue> lookahead_value(const std::string& text) {
  if (text != "lookahead") return std::nullopt;
  return text_value("ngram");
}

// The reader of settings begins a sentence with the flag of the value; here none was given.
std::string without_flag(const std::string& sentence) {
  return sentence.starts_with("--set ") ? sentence.substr(sentence.find(": ") + 2) : sentence;
}

// Parameters of TensorRT-LLM's backend that have a key of ours. A later line for a key wins.
struct MappedParameter {
  const char* parameter;
  const char* key;
  ImportConversion convert;
  const char* draft_key = nullptr;  // in the configuration of a draft model; none = left out there
};
constexpr MappedParameter kMapped[] = {
    {"tokenizer_dir", "model.target", same_value},
    {"kv_cache_free_gpu_mem_fraction", "kv_cache.memory", share_value, "draft.memory"},
    {"kv_cache_free_gpu_memory_fraction", "kv_cache.memory", share_value, "draft.memory"},
    {"max_tokens_in_paged_kv_cache", "kv_cache.memory", tokens_value, "draft.memory"},
    {"enable_kv_cache_reuse", "kv_cache.prefix_cache", truth_value},
    {"kv_cache_enable_block_reuse", "kv_cache.prefix_cache", truth_value},
    {"batch_scheduler_policy", "limits.policy", same_value},
    {"max_queue_size", "limits.max_waiting", whole_value},
    {"max_num_tokens", "limits.max_batch_rows", whole_value},
    {"decoding_mode", "speculation.proposer", lookahead_value},
    {"exclude_input_in_output", "edge.triton_exclude_input", truth_value},
};

struct LeftOutField {
  const char* name;
  const char* reason;
};
constexpr const char* kOfRequests = "requests say it";
constexpr const char* kNotNeeded = "not needed here";
constexpr LeftOutField kLeftOut[] = {
    {"engine_dir",
     "an engine is no model folder; model.target is the Hugging Face folder it was built from"},
    {"gpt_model_path",
     "an engine is no model folder; model.target is the Hugging Face folder it was built from"},
    {"gpt_model_type", "batches are always continuous"},
    {"batching_type", "batches are always continuous"},
    {"enable_chunked_context", "prompts are always read in parts, see limits.prefill_chunk"},
    {"decoupled_mode", "generate_stream streams, generate does not"},
    {"model_transaction_policy", "generate_stream streams, generate does not"},
    {"accumulate_tokens", kNotNeeded},
    {"add_special_tokens", kOfRequests},
    {"skip_special_tokens", kOfRequests},
    {"max_beam_width", "there is no beam search"},
    {"tensorrt_llm_model_name", "the pipeline is one model here"},
    {"ensemble_scheduling", "the pipeline is one model here, which answers to ensemble too"},
    {"instance_group", "foretoken up --targets N --drafts N starts more services"},
    {"preprocessing_instance_count", "one tokenizer service serves many targets"},
    {"postprocessing_instance_count", "one tokenizer service serves many targets"},
    {"bls_instance_count", kNotNeeded},
    {"participant_ids", "target.tensor_parallel is the number of ranks"},
    {"input", kNotNeeded},
    {"output", kNotNeeded},
    {"max_queue_delay_microseconds", "a pass never waits for requests"},
    {"preferred_batch_size", kNotNeeded},
    {"dynamic_batching", kNotNeeded},
    {"triton_backend", kNotNeeded},
    {"tokenizer_type", "the folder says it"},
    {"executor_worker_path", kNotNeeded},
    {"FORCE_CPU_ONLY_INPUT_TENSORS", kNotNeeded},
};

class TritonImport {
 public:
  explicit TritonImport(const std::vector<TritonConfig>& configs) {
    for (const auto& config : configs)
      for (const auto& [key, value] : config.parameters)
        if (key == "tensorrt_llm_draft_model_name" && is_given(value)) draft_name_ = value;
    for (const TritonConfig& config : configs) add(config);
    finish();
  }

  std::string toml() const {
    std::string text;
    for (const auto& [section, lines] : lines_) {
      text += "\n[" + section + "]\n";
      for (const auto& [key, line] : lines) text += line + "\n";
    }
    if (!left_out_.empty()) text += "\n# Left out:\n";
    for (const std::string& line : left_out_) text += "#   " + line + "\n";
    return text;
  }

 private:
  struct Setting {
    ImportedValue value;
    std::string from;  // the file and its parameter
  };

  static bool is_given(const std::string& value) {
    return !value.empty() && !value.starts_with("${");
  }

  void add(const TritonConfig& config) {
    const bool is_draft = !draft_name_.empty() && config.name == draft_name_;
    if (config.max_queue_size > 0)
      set(config, "max_queue_size", "limits.max_waiting",
          whole_value(std::to_string(config.max_queue_size)));
    if (config.timeout_us > 0)
      set(config, "default_timeout_microseconds", "limits.request_timeout_s",
          whole_value(std::to_string((config.timeout_us + 999'999) / 1'000'000)));
    for (const auto& [name, value] : config.parameters)
      add_parameter(config, name, value, is_draft);
    if (config.backend == "tensorrtllm" && !has(is_draft ? "draft.device" : "target.device"))
      set(config, "backend", is_draft ? "draft.device" : "target.device", text_value("cuda"));
    for (const std::string& name : config.skipped) leave_out(config, name, reason_for(name));
    // After max_num_tokens: a batch needs a row for each sequence.
    if (config.max_batch_size > 0 && config.backend == "tensorrtllm")
      set(config, "max_batch_size", is_draft ? "draft.max_sequences" : "limits.max_running",
          whole_value(std::to_string(config.max_batch_size)));
  }

  void add_parameter(const TritonConfig& config,
                     const std::string& name,
                     const std::string& value,
                     bool is_draft) {
    if (value.empty()) return;  // not set
    if (!is_given(value)) return leave_out(config, name, value + " is not filled in");
    if (name == "tensorrt_llm_draft_model_name") return;
    if (name == "gpu_device_ids") return set_devices(config, value, is_draft);
    bool is_mapped = false;
    for (const MappedParameter& mapped : kMapped) {
      if (name != mapped.parameter) continue;
      const char* key = is_draft ? mapped.draft_key : mapped.key;
      if (key == nullptr) continue;
      is_mapped = true;
      set(config, name, key, mapped.convert(value), value);
    }
    if (!is_mapped) leave_out(config, name, reason_for(name));
  }

  // Semicolons separate the devices of instances.
  void set_devices(const TritonConfig& config, const std::string& given, bool is_draft) {
    const std::string name = "gpu_device_ids", section = is_draft ? "draft." : "target.";
    const auto semicolon = std::min(given.find(';'), given.size());
    const std::string device = device_of(given.substr(0, semicolon));
    const auto devices = device_list_of(device);
    if (!devices.ok())
      return leave_out(config, name,
                       "\"" + given + "\" has no counterpart in " + section + "device");
    const std::string n_ranks = std::to_string(devices->numbers.size());
    set_all(config, name,
            {{section + "device", text_value(device)},
             {section + "tensor_parallel", {n_ranks, n_ranks}}});
    if (semicolon + 1 < given.size())
      leave_out(config, name,
                given.substr(semicolon + 1) +
                    " is of further instances, which foretoken up --targets N --drafts N starts");
  }

  // Without a value it is left out.
  void set(const TritonConfig& config,
           const std::string& name,
           const std::string& key,
           const std::optional<ImportedValue>& value,
           const std::string& given = "") {
    if (!value) return leave_out(config, name, "\"" + given + "\" has no counterpart in " + key);
    set_all(config, name, {{key, *value}});
  }

  // By key. Where our own reader refuses them beside the others, none is set.
  void set_all(const TritonConfig& config,
               const std::string& name,
               const std::map<std::string, ImportedValue>& values) {
    auto settings = settings_;
    for (const auto& [key, value] : values) settings[key] = {value, config.name + ": " + name};
    ConfigSources sources{.file = "/dev/null"};
    for (const auto& [key, setting] : settings)
      sources.settings.push_back(key + "=" + setting.value.setting);
    const auto loaded = load_config(sources);
    if (!loaded.errors.empty()) return leave_out(config, name, without_flag(loaded.errors.front()));
    const auto before = std::exchange(settings_, std::move(settings));
    for (const auto& [key, value] : values) {
      if (const auto replaced = before.find(key); replaced != before.end())
        leave_out_replaced(replaced->second, settings_[key]);
      line(key, value.toml, settings_[key].from);
    }
  }

  void line(const std::string& key, const std::string& toml, const std::string& from) {
    const auto dot = key.find('.');
    lines_[key.substr(0, dot)][key.substr(dot + 1)] =
        key.substr(dot + 1) + " = " + toml + "  # " + one_line(from);
  }
  bool has(const std::string& key) const {
    const auto dot = key.find('.');
    const auto section = lines_.find(key.substr(0, dot));
    return section != lines_.end() && section->second.contains(key.substr(dot + 1));
  }

  static std::string reason_for(const std::string& name) {
    for (const LeftOutField& left : kLeftOut)
      if (name == left.name) return left.reason;
    return "nothing here does this";
  }
  void leave_out(const TritonConfig& config, const std::string& name, const std::string& reason) {
    left_out_.push_back(one_line(config.name + ": " + name + ": " + reason));
  }

  // A key has one value.
  void leave_out_replaced(const Setting& before, const Setting& now) {
    if (before.value.toml != now.value.toml)
      left_out_.push_back(one_line(before.from + ": " + now.from + " is given too"));
  }

  // The models, which no file names as folders.
  void finish() {
    if (!has("model.target"))
      lines_["model"]["target"] =
          "# target = \"FOLDER\"  # the Hugging Face folder that the engine was built from";
    if (!draft_name_.empty()) {
      lines_["model"]["draft"] =
          "# draft = \"FOLDER\"  # the Hugging Face folder of " + one_line(draft_name_);
      if (has("speculation.proposer"))
        left_out_.emplace_back("decoding_mode: a draft model is named, too");
      line("speculation.proposer", R"(["draft", "ngram"])", "tensorrt_llm_draft_model_name");
    } else {
      line("model.draft", "\"\"", "no draft model is named");
      if (!has("speculation.proposer"))
        line("speculation.proposer", "\"ngram\"", "it needs no draft model and changes no text");
    }
  }

  std::string draft_name_;
  std::map<std::string, Setting> settings_;                          // by key, what our reader took
  std::map<std::string, std::map<std::string, std::string>> lines_;  // section -> key -> line
  std::vector<std::string> left_out_;
};

}  // namespace

std::string imported_toml(const std::vector<TritonConfig>& configs) {
  std::string text = "# From Triton's configuration of ";
  for (const TritonConfig& config : configs)
    text += (&config == configs.data() ? "" : ", ") + one_line(config.name);
  return text + ".\n" + TritonImport(configs).toml();
}

}  // namespace foretoken::import_triton
