#include "common/runtime/transport_metrics.h"

#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "common/transport/accept_guard.h"

namespace foretoken {
namespace {

struct Outcome {
  const char* name;
  std::atomic<std::uint64_t> DoorCounters::*count;
};
constexpr std::array<Outcome, 5> kOutcomes{{{"received", &DoorCounters::received},
                                            {"sent", &DoorCounters::sent},
                                            {"busy", &DoorCounters::busy},
                                            {"unknown_peer", &DoorCounters::unknown_peer},
                                            {"malformed", &DoorCounters::malformed}}};

}  // namespace

void publish_transport(Metrics& metrics, std::shared_ptr<const TransportCounters> counters) {
  metrics.before_text([&metrics, counters = std::move(counters)] {
    for (std::size_t i = 0; i < kDoors; ++i) {
      const DoorCounters& counts = counters->doors[i];
      const std::string name(name_of(static_cast<Door>(i)));
      for (const Outcome& outcome : kOutcomes)
        metrics.counter("transport_messages_total", (counts.*outcome.count).load(),
                        {{"link", name}, {"outcome", outcome.name}});
      metrics.counter("transport_handshakes_refused_total", counts.handshakes_refused.load(),
                      {{"link", name}});
    }
    metrics.counter("transport_turned_away_total", connections_turned_away());
  });
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
  metrics.before_text([&metrics, counters = std::move(counters)] {
    for (const Event& event : kEvents)
      metrics.counter("memory_links_total", ((*counters).*event.count).load(),
                      {{"event", event.name}});
  });
}

}  // namespace foretoken
