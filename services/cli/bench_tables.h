// What bench measured, as tables for people. Pure.
#pragma once

#include <string>
#include <vector>

#include "services/cli/bench_result.h"

namespace foretoken::cli {

// Mean and percentiles of each time, then the same requests by kind of text.
std::string latency_table(const BenchSamples& samples);
// A run with so many requests at a time.
struct SweepRow {
  int concurrency = 0;
  BenchSamples samples;
};
std::string sweep_table(const std::vector<SweepRow>& rows, const LatencyGoals& goals);
// By kind of text with what it brought, then by position: of the rounds that guessed so far, the
// share whose guess there stood.
std::string acceptance_table(const BenchSamples& samples);

}  // namespace foretoken::cli
