#include "services/router/cut_passes.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/wire/client_codec.h"

namespace foretoken {
namespace {

// In an answer. They are not copied: they may be megabytes.
std::size_t size_of(std::vector<wire::ServicePasses>& passes) {
  wire::ClientAnswer answer = wire::PassesReply{.passes = std::move(passes)};
  const std::size_t n_bytes = wire::write_client_answer(answer).size();
  passes = std::move(std::get<wire::PassesReply>(answer).passes);
  return n_bytes;
}

std::size_t most_of_one(const std::vector<wire::ServicePasses>& passes) {
  std::size_t most = 0;
  for (const wire::ServicePasses& each : passes) most = std::max(most, each.passes.ago_us.size());
  return most;
}

void keep_newest(wire::Passes& of, std::size_t n) {
  const std::size_t n_cut = of.ago_us.size() - std::min(n, of.ago_us.size());
  for (auto* list : {&of.ago_us, &of.wait_us, &of.compute_us, &of.commit_us, &of.sequences,
                     &of.rows, &of.drafted, &of.accepted, &of.tokens})
    list->erase(list->begin(),
                list->begin() + static_cast<std::ptrdiff_t>(std::min(n_cut, list->size())));
  of.first += n_cut;
}

}  // namespace

std::size_t cut_passes(std::vector<wire::ServicePasses>& passes, std::size_t most) {
  std::size_t n_bytes = size_of(passes);
  for (std::size_t n = most_of_one(passes); n_bytes > most && n > 0; n_bytes = size_of(passes)) {
    // All but some hundred bytes a service are passes, of about the same size.
    n = std::min(n - 1, n * most / n_bytes);
    for (wire::ServicePasses& each : passes) keep_newest(each.passes, n);
  }
  return n_bytes;
}

}  // namespace foretoken
