// Files that serve, latency and acceptance of bench wrote, read again: each holds one run, or with
// --compare two.
#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"

namespace foretoken::cli {

// One run as the document says it. A key that an older file lacks is null.
struct BenchRun {
  std::string label;  // the file's name, and which of its runs
  Json document;

  // The member of this name, or of the object in it; null where there is none.
  const Json& at(const char* name) const;
  const Json& at(const char* name, const char* inner) const;
  double number(const char* name, const char* inner) const;  // 0 where there is none
  double number(const char* name) const;
  std::string text(const char* name) const;
  // No request failed: times and throughput without those of some claim nothing.
  bool is_complete() const { return number("failed") == 0; }
  // The most guesses a round had: as asked for, or as its rounds show.
  int draft_len() const;
};

// An Error names the file and what is wrong with it.
Result<std::vector<BenchRun>> read_bench_runs(const std::vector<std::string>& files);

}  // namespace foretoken::cli
