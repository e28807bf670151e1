#include "services/cli/bench_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "services/cli/bench_result.h"

namespace foretoken::cli {
namespace {

const Json& field_or_null(const Json& object, const char* name) {
  static const Json none;
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

double number_or_zero(const Json& value) { return value.is_number() ? value.get<double>() : 0; }

Error not_of_bench(const std::string& file, const std::string& why) {
  return {ErrorCode::kConfig, file + " is no document of bench: " + why};
}

}  // namespace

const Json& BenchRun::at(const char* name) const { return field_or_null(document, name); }
const Json& BenchRun::at(const char* name, const char* inner) const {
  return field_or_null(at(name), inner);
}
double BenchRun::number(const char* name, const char* inner) const {
  return number_or_zero(at(name, inner));
}
double BenchRun::number(const char* name) const { return number_or_zero(at(name)); }
std::string BenchRun::text(const char* name) const {
  const Json& value = at(name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

int BenchRun::draft_len() const {
  if (const Json& asked = at("num_draft_tokens"); asked.is_number()) return asked.get<int>();
  const Json& histogram = at("speculative_decoding", "acceptance_histogram");
  return histogram.is_array() && !histogram.empty() ? static_cast<int>(histogram.size()) - 1 : 0;
}

Result<std::vector<BenchRun>> read_bench_runs(const std::vector<std::string>& files) {
  std::vector<BenchRun> runs;
  for (const std::string& file : files) {
    std::ifstream in(file);
    if (!in) return Error{ErrorCode::kConfig, "cannot read " + file};
    auto parsed = parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
    if (!parsed.ok()) return not_of_bench(file, parsed.error().message);
    const Json& schema = field_or_null(*parsed, "schema");
    const std::string label = std::filesystem::path(file).stem().string();
    const bool is_run =
        std::find(kRunSchemas.begin(), kRunSchemas.end(), schema) != kRunSchemas.end();
    if (is_run) {
      runs.push_back({label, std::move(*parsed)});
    } else if (schema == "foretoken.bench_compare/1" &&
               field_or_null(*parsed, "plain").is_object() &&
               field_or_null(*parsed, "speculative").is_object()) {
      for (const char* which : {"plain", "speculative"})
        runs.push_back({label + ", " + which, std::move((*parsed)[which])});
    } else if (schema == kSweepSchema && field_or_null(*parsed, "runs").is_array()) {
      for (Json& run : (*parsed)["runs"]) {
        const std::string concurrency = to_text(field_or_null(run, "concurrency"));
        runs.push_back({label + ", " + concurrency, std::move(run)});
      }
    } else {
      return not_of_bench(file, "its schema is " + to_text(schema) +
                                    " and none of \"foretoken.bench_serve/1\", _latency, "
                                    "_acceptance, _compare and _sweep");
    }
  }
  return runs;
}

}  // namespace foretoken::cli
