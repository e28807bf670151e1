#include "common/runtime/transport_metrics.h"

#include <array>
#include <atomic>
#include <string>
#include <utility>

namespace foretoken {
namespace {

struct Outcome {
  const char* name;
  std::atomic<std::uint64_t> LinkCounters::*count;
};
constexpr std::array<Outcome, 5> kOutcomes{{{"received", &LinkCounters::received},
                                            {"sent", &LinkCounters::sent},
                                            {"busy", &LinkCounters::busy},
                                            {"unknown_peer", &LinkCounters::unknown_peer},
                                            {"malformed", &LinkCounters::malformed}}};

}  // namespace

void publish_transport(Metrics& metrics, std::shared_ptr<const TransportCounters> counters) {
  using Counted = std::array<std::array<std::uint64_t, kOutcomes.size() + 1>, kDoors>;
  const auto refresh = [&metrics, counters = std::move(counters), counted = Counted{}]() mutable {
    for (std::size_t i = 0; i < kDoors; ++i) {
      const LinkCounters& link = counters->links[i];
      const std::string name(name_of(static_cast<Door>(i)));
      const auto count = [](Counter counter, std::uint64_t now, std::uint64_t& before) {
        counter.add(static_cast<double>(now - before));
        before = now;
      };
      for (std::size_t k = 0; k < kOutcomes.size(); ++k)
        count(metrics.counter("transport_messages_total", "Messages, by kind of link and outcome.",
                              {{"link", name}, {"outcome", kOutcomes[k].name}}),
              link.*kOutcomes[k].count, counted[i][k]);
      count(metrics.counter("transport_handshakes_refused_total",
                            "Connections without a key that is listed.", {{"link", name}}),
            link.handshakes_refused, counted[i][kOutcomes.size()]);
    }
  };
  metrics.before_text(refresh);
}

void publish_memory_links(Metrics& metrics, std::shared_ptr<const MemoryLinkCounters> counters) {
  struct Event {
    const char* name;
    std::atomic<std::uint64_t> MemoryLinkCounters::*count;
  };
  static constexpr std::array<Event, 7> kEvents{{{"opened", &MemoryLinkCounters::opened},
                                                 {"ended", &MemoryLinkCounters::ended},
                                                 {"broken", &MemoryLinkCounters::broken},
                                                 {"refused", &MemoryLinkCounters::refused},
                                                 {"sent", &MemoryLinkCounters::sent},
                                                 {"received", &MemoryLinkCounters::received},
                                                 {"busy", &MemoryLinkCounters::busy}}};
  const auto refresh = [&metrics, counters = std::move(counters),
                        counted = std::array<std::uint64_t, kEvents.size()>{}]() mutable {
    for (std::size_t k = 0; k < kEvents.size(); ++k) {
      const std::uint64_t now = (*counters).*kEvents[k].count;
      metrics
          .counter("memory_links_total",
                   "Links through shared memory and their messages, by event.",
                   {{"event", kEvents[k].name}})
          .add(static_cast<double>(now - std::exchange(counted[k], now)));
    }
  };
  metrics.before_text(refresh);
}

}  // namespace foretoken
