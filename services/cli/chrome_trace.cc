#include "services/cli/chrome_trace.h"

#include <algorithm>

#include "common/base/json.h"

namespace foretoken::cli {
namespace {

// Of an answer whose lists differ in length, what all of them have.
std::size_t n_passes(const wire::Passes& p) {
  std::size_t n = p.ago_us.size();
  for (const auto* list : {&p.wait_us, &p.compute_us, &p.commit_us, &p.sequences, &p.rows,
                           &p.drafted, &p.accepted, &p.tokens})
    n = std::min(n, list->size());
  return n;
}

TracedPass pass_of(const wire::Passes& p, std::size_t i) {
  return {.began_us = p.now_us - std::min<std::uint64_t>(p.now_us, p.ago_us[i]),
          .wait_us = p.wait_us[i],
          .compute_us = p.compute_us[i],
          .commit_us = p.commit_us[i],
          .sequences = p.sequences[i],
          .rows = p.rows[i],
          .drafted = p.drafted[i],
          .accepted = p.accepted[i],
          .tokens = p.tokens[i]};
}

// Times count from the earliest pass: a number with all its digits since 1970 loses microseconds
// where a reader takes it for a float.
class Events {
 public:
  Events(OrderedJson& list, std::uint64_t zero_us) : list_(list), zero_us_(zero_us) {}

  void name_of(const char* what, int process, const std::string& name) {
    list_.push_back({{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", 1}});
    list_.back()["args"]["name"] = name;
  }
  void slice(const std::string& name,
             int process,
             std::uint64_t from_us,
             std::uint32_t took_us,
             OrderedJson about) {
    list_.push_back({{"name", name},
                     {"ph", "X"},
                     {"pid", process},
                     {"tid", 1},
                     {"ts", from_us - zero_us_},
                     {"dur", took_us}});
    list_.back()["args"] = std::move(about);
  }
  void count(const std::string& name, int process, std::uint64_t at_us, std::uint32_t value) {
    list_.push_back(
        {{"name", name}, {"ph", "C"}, {"pid", process}, {"tid", 1}, {"ts", at_us - zero_us_}});
    list_.back()["args"][name] = value;
  }

 private:
  OrderedJson& list_;
  std::uint64_t zero_us_;
};

OrderedJson figures_of(const TracedPass& pass) {
  return {{"sequences", pass.sequences},
          {"rows", pass.rows},
          {"drafted", pass.drafted},
          {"accepted", pass.accepted},
          {"tokens", pass.tokens}};
}

void add_target(Events& events, int process, const TracedPass& pass) {
  if (pass.wait_us > 0)
    events.slice("wait", process, pass.began_us - pass.wait_us, pass.wait_us,
                 OrderedJson::object());
  const char* name = pass.drafted > 0 ? "verify" : pass.tokens > 0 ? "decode" : "prefill";
  events.slice(name, process, pass.began_us, pass.compute_us, figures_of(pass));
  const std::uint64_t computed = pass.began_us + pass.compute_us;
  events.slice("commit", process, computed, pass.commit_us, OrderedJson::object());
  events.count("tokens", process, computed + pass.commit_us, pass.tokens);
}

void add_draft(Events& events, int process, const TracedPass& pass) {
  const char* name = pass.drafted > 0 ? "propose" : "prefill";
  events.slice(name, process, pass.began_us, pass.compute_us,
               {{"rows", pass.rows}, {"drafted", pass.drafted}});
}

}  // namespace

void PassRecord::add(const std::vector<wire::ServicePasses>& answer, std::uint64_t back_us) {
  for (const auto& each : answer) {
    // A service that comes later began to be recorded when all did.
    const wire::Passes& passes = each.passes;
    const auto from =
        from_us_.try_emplace(each.name, passes.now_us - std::min(passes.now_us, back_us));
    TracedService& service = services_[each.name];
    service.role = each.role;
    service.name = each.name;
    service.model = each.model;
    const std::size_t n = n_passes(passes);
    if (passes.first + n < service.next) service.next = 0;  // another incarnation: it counts anew
    if (service.next > 0 && passes.first > service.next)
      service.n_lost += passes.first - service.next;
    for (std::size_t i = 0; i < n; ++i) {
      if (passes.first + i < service.next) continue;
      const TracedPass pass = pass_of(passes, i);
      if (pass.began_us >= from.first->second) service.passes.push_back(pass);
    }
    service.next = std::max(service.next, passes.first + n);
  }
}

std::string chrome_trace(const PassRecord& record) {
  std::uint64_t zero_us = ~std::uint64_t{0};
  for (const auto& entry : record.services())
    for (const TracedPass& pass : entry.second.passes)
      zero_us =
          std::min(zero_us, pass.began_us - std::min<std::uint64_t>(pass.began_us, pass.wait_us));
  OrderedJson document = OrderedJson::object();
  document["displayTimeUnit"] = "ms";
  document["traceEvents"] = OrderedJson::array();
  Events events(document["traceEvents"], zero_us);
  int process = 0;
  for (const auto& [name, service] : record.services()) {
    ++process;
    events.name_of("process_name", process, name + " (" + service.model + ")");
    events.name_of("thread_name", process, "passes");
    for (const TracedPass& pass : service.passes)
      service.role == name_of(wire::Role::kTarget) ? add_target(events, process, pass)
                                                   : add_draft(events, process, pass);
  }
  return to_text(document);
}

}  // namespace foretoken::cli
