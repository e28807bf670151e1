// The passes of targets and drafts as a trace in Chrome's JSON form, which Perfetto and
// chrome://tracing open. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/messages/client.h"

namespace foretoken::cli {

// One pass; times in microseconds since 1970, of the clock of its service's host.
struct TracedPass {
  std::uint64_t began_us = 0;  // to compute; it waited before that
  std::uint32_t wait_us = 0, compute_us = 0, commit_us = 0;
  std::uint32_t sequences = 0, rows = 0, drafted = 0, accepted = 0, tokens = 0;
};

// What several answers to the same question said, each pass once.
class PassRecord {
 public:
  struct TracedService {
    std::string role, name, model;
    std::uint64_t next = 0;    // number of the first pass that has not been seen
    std::uint64_t n_lost = 0;  // passes that were forgotten before they were asked for
    std::vector<TracedPass> passes;
  };

  // `back_us`: how long ago the record begins, at the time of this answer. The first answer that
  // has a service says when that was by its own clock; its passes from before are left out.
  void add(const std::vector<wire::ServicePasses>& answer, std::uint64_t back_us);
  const std::map<std::string, TracedService>& services() const { return services_; }

 private:
  std::map<std::string, TracedService> services_;  // by name
  std::map<std::string, std::uint64_t> from_us_;   // by name
};

std::string chrome_trace(const PassRecord& record);

}  // namespace foretoken::cli
