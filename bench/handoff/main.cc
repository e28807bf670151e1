// Times the handoff of a proposal between two processes through each tier, on the bus that services
// use. bench/handoff/notes.md says what it found. One run, tiers in turn, ratios first.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/runtime/threaded_bus.h"
#include "common/transport/zmq_transport.h"
#include "common/wire/codec.h"

namespace foretoken {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTokens = 10;
constexpr std::uint64_t kSpin = 1;  // a request id tells the other process how to wait

struct Tier {
  const char* name;
  std::string endpoint;
  bool spins = false;
  Peer peer = {};
  std::vector<double> us = {};
};

std::unique_ptr<ThreadedBus> new_bus() {
  return std::make_unique<ThreadedBus>(std::make_unique<ZmqTransport>());
}

// False: the link took none of it.
bool send_either_way(ThreadedBus& bus, const Peer& to, Frames frames) {
  if (MemoryLinks::is_socket(to.socket)) return bus.try_send(to, frames) == SendResult::kSent;
  bus.send(to, std::move(frames), {});
  return true;
}

// The next message. Spinning looks again and again without sleeping.
std::optional<Delivery> next(ThreadedBus& bus, bool spins, Clock::duration patience) {
  const TimePoint until = bus.now() + patience;
  do {
    auto delivery = bus.receive(spins ? TimePoint::min() : until);
    if (delivery && delivery->kind == DeliveryKind::kMessage) return delivery;
  } while (bus.now() < until);
  return std::nullopt;
}

// The other process: answers until it is killed, by its parent or with it.
[[noreturn]] void answer(const std::vector<Tier>& tiers) {
  const auto bus = new_bus();
  for (const Tier& tier : tiers)
    if (!tier.spins) bus->bind(tier.endpoint, Door::kDraft);
  wire::Speaker speaker(WorkerId{2}, Incarnation{2});
  bool spins = false;
  while (true) {
    const auto question = next(*bus, spins, std::chrono::seconds(1));
    if (!question) continue;
    const auto incoming = wire::decode(question->frames);
    if (!incoming.ok()) continue;
    spins = incoming->header.request.low == kSpin;
    const auto* propose = std::get_if<wire::Propose>(&incoming->message);
    if (propose == nullptr) continue;
    const wire::ProposeRecord& asked = propose->records.at(0);
    wire::Proposal proposal;
    proposal.records.push_back({.seq = asked.seq,
                                .lease = asked.lease,
                                .epoch = asked.epoch,
                                .base = asked.from,
                                .prefix = asked.prefix,
                                .tokens = std::vector<TokenId>(kTokens, 4711),
                                .confidence = std::vector<std::uint8_t>(kTokens, 200),
                                .known = asked.from});
    (void)send_either_way(*bus, question->peer,
                          wire::encode(speaker, incoming->header.request, proposal));
  }
}

// Microseconds of one round trip; negative: no answer came.
double round_trip(ThreadedBus& bus, Tier& tier, wire::Speaker& speaker, std::uint32_t number) {
  const auto begin = Clock::now();
  wire::Propose propose;
  propose.records.push_back({.seq = SeqId{7},
                             .lease = Lease{1},
                             .epoch = Epoch{number},
                             .from = 1000 + number,
                             .tail = std::vector<TokenId>(5, 4711),
                             .prefix = 0x0123456789ABCDEF,
                             .budget = kTokens});
  const RequestId how{0, tier.spins ? kSpin : 0};
  if (!send_either_way(bus, tier.peer, wire::encode(speaker, how, propose))) {
    (void)bus.receive(bus.now() + std::chrono::milliseconds(5));  // it may be greeting
    return -1;
  }
  while (auto delivery = next(bus, tier.spins, std::chrono::milliseconds(200))) {
    const auto incoming = wire::decode(delivery->frames);
    if (!incoming.ok()) continue;
    const auto* proposal = std::get_if<wire::Proposal>(&incoming->message);
    if (proposal == nullptr || proposal->records.at(0).epoch.value != number) continue;
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  }
  return -1;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values.at(static_cast<std::size_t>(q * static_cast<double>(values.size() - 1)));
}

// As many digits as the measurement is worth.
double rounded(double x, int decimals) {
  const double scale = std::pow(10, decimals);
  return std::round(x * scale) / scale;
}

// What a target does between rounds, as far as the other side is concerned: something else.
void work_for(int us) {
  const auto until = Clock::now() + std::chrono::microseconds(us);
  while (Clock::now() < until) {
  }
}

bool measure(std::vector<Tier>& tiers, int n_blocks, int block, int gap_us) {
  const auto bus = new_bus();
  wire::Speaker speaker(WorkerId{1}, Incarnation{1});
  std::uint32_t number = 0;
  for (Tier& tier : tiers) {
    for (int i = 0; i < 200 && tier.us.empty(); ++i) {
      ::usleep(10'000);  // until the other process has bound and greeted
      try {
        if (tier.peer.socket == 0) tier.peer.socket = bus->connect(tier.endpoint, Door::kDraft);
      } catch (const FatalError&) {
        continue;
      }
      if (round_trip(*bus, tier, speaker, ++number) > 0) tier.us.push_back(0);
    }
    if (tier.us.empty()) return std::fprintf(stderr, "%s: no answer\n", tier.name), false;
    tier.us.clear();
  }
  for (int b = 0; b < n_blocks; ++b)
    for (Tier& tier : tiers)
      for (int i = 0; i < block + 5; ++i) {
        work_for(gap_us);
        const double us = round_trip(*bus, tier, speaker, ++number);
        if (i >= 5 && us > 0) tier.us.push_back(us);  // the first ones still learn how to wait
      }
  return true;
}

void print(const std::vector<Tier>& tiers, int gap_us, const std::string& json) {
  const double base = quantile(tiers.front().us, 0.5);
  std::printf("%-28s %8s %8s %8s %8s %10s\n", "tier", "p10 us", "p50 us", "p90 us", "p99 us",
              "p50 ratio");
  OrderedJson rows = OrderedJson::array();
  for (const Tier& tier : tiers) {
    const double p50 = quantile(tier.us, 0.5);
    std::printf("%-28s %8.1f %8.1f %8.1f %8.1f %9.2fx  (%zu round trips)\n", tier.name,
                quantile(tier.us, 0.1), p50, quantile(tier.us, 0.9), quantile(tier.us, 0.99),
                base / p50, tier.us.size());
    rows.push_back({{"tier", tier.name},
                    {"n", tier.us.size()},
                    {"p10_us", rounded(quantile(tier.us, 0.1), 1)},
                    {"p50_us", rounded(p50, 1)},
                    {"p90_us", rounded(quantile(tier.us, 0.9), 1)},
                    {"p99_us", rounded(quantile(tier.us, 0.99), 1)},
                    {"times_faster_than_first", rounded(base / p50, 2)}});
  }
  if (json.empty()) return;
  const OrderedJson document = {{"schema", "foretoken.handoff/1"},
                                {"tokens", kTokens},
                                {"gap_us", gap_us},
                                {"cores", ::sysconf(_SC_NPROCESSORS_ONLN)},
                                {"tiers", std::move(rows)}};
  std::ofstream(json) << to_text(document, 2) << "\n";
}

int run(int n_blocks, int block, int gap_us, const std::string& json) {
  char name[] = "/tmp/foretoken-handoff-XXXXXX";
  if (::mkdtemp(name) == nullptr) {
    std::perror(name);
    return 1;
  }
  const std::string folder = name;
  const std::string memory = "shm://" + folder + "/memory";
  std::vector<Tier> tiers = {
      {"zeromq ipc", "ipc://" + folder + "/ipc"},
      {"zeromq tcp loopback", "tcp://127.0.0.1:" + std::to_string(20000 + ::getpid() % 20000)},
      {"shared memory", memory},
      {"shared memory, spinning", memory, true}};
  const pid_t parent = ::getpid();
  const pid_t other = ::fork();
  if (other == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    answer(tiers);
  }
  const bool ok = other > 0 && measure(tiers, n_blocks, block, gap_us);
  if (other > 0) ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  std::filesystem::remove_all(folder);
  if (ok) print(tiers, gap_us, json);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "-h" || first == "--help" || argc > 4) {
    std::printf(
        "usage: foretoken-bench-handoff [BLOCKS] [GAP_US] [JSON-FILE]\n"
        "Round trips of a proposal of 10 tokens between two processes, by tier: BLOCKS (20) of 100 "
        "each, after GAP_US (0) microseconds of other work.\n");
    return argc > 4 ? 64 : 0;
  }
  const int n_blocks = argc > 1 ? std::max(1, std::atoi(argv[1])) : 20;
  const int gap_us = argc > 2 ? std::max(0, std::atoi(argv[2])) : 0;
  return foretoken::run(n_blocks, 100, gap_us, argc > 3 ? argv[3] : "");
}
