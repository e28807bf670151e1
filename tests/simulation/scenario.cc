#include "tests/simulation/scenario.h"

#include <algorithm>
#include <cinttypes>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "common/base/hash.h"
#include "common/wire/envelope.h"
#include "tests/message_text/describe.h"
#include "tests/simulation/customer.h"
#include "tests/simulation/history.h"
#include "tests/simulation/world.h"

namespace foretoken::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kRequestsComeFor = seconds(4);
constexpr Duration kTroublesLast = seconds(12);
constexpr Duration kAllAnsweredWithin = seconds(240);  // of the heal
constexpr Duration kRest = seconds(40);  // leases, finished answers and streams are kept 10 to 25 s
constexpr Duration kDrainWithin = seconds(10);

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : bits_(seed) {}
  // Both ends included.
  std::int64_t number(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(double p) { return static_cast<double>(bits_() >> 11) * 0x1p-53 < p; }
  Duration time(Duration low, Duration high) { return Duration(number(low.count(), high.count())); }
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(number(0, std::ssize(list) - 1))];
  }
  std::uint64_t bits() { return bits_(); }

 private:
  std::mt19937_64 bits_;
};

// Everything that is sent and received, as one number, and as lines for people.
class Trace {
 public:
  Trace(World& world, std::FILE* out, Outcome::Counts& counts)
      : world_(world), out_(out), counts_(counts) {
    world.network().set_observer([this](const LoopbackEvent& event) { on_message(event); });
  }
  std::uint64_t hash() const { return hash_; }

  void say(const std::string& what) {
    mix(fnv1a(what));
    if (out_ != nullptr) std::fprintf(out_, "%12.6f  %s\n", seconds_now(), what.c_str());
  }

 private:
  double seconds_now() const {
    return std::chrono::duration<double>(world_.now().time_since_epoch() - std::chrono::hours(1))
        .count();
  }
  void mix(std::uint64_t value) { hash_ = mix64(hash_ ^ value) + value; }

  void on_message(const LoopbackEvent& event) {
    static constexpr std::string_view kFates[] = {"sent", "LOST",          "twice",
                                                  "BUSY", "NO CONNECTION", "arrived"};
    switch (event.fate) {
      case LoopbackFate::kLost:
        ++counts_.lost;
        break;
      case LoopbackFate::kBusy:
        ++counts_.busy;
        break;
      case LoopbackFate::kNoPeer:
        ++counts_.no_peer;
        break;
      default:
        ++counts_.sent;
    }
    const auto [what, is_same_each_time] = describe(event);
    mix(static_cast<std::uint64_t>(event.at.time_since_epoch().count()));
    mix(fnv1a(event.from) ^ mix64(fnv1a(event.to)) ^ static_cast<std::uint64_t>(event.fate));
    mix(fnv1a(what));
    if (is_same_each_time)
      for (const Bytes& frame : event.frames) mix(fnv1a(frame));
    if (out_ != nullptr)
      std::fprintf(out_, "%12.6f  %-12s > %-12s %-13s %s\n", seconds_now(), event.from.c_str(),
                   event.to.c_str(), kFates[static_cast<std::size_t>(event.fate)].data(),
                   what.c_str());
  }

  // Messages with a number of the machine in them (memory, pid, random token) differ from run to
  // run: their type alone counts.
  static std::pair<std::string, bool> describe(const LoopbackEvent& event) {
    const Bytes& first = event.frames.front();
    const auto header = wire::read_header(first);
    if (header.ok()) {
      char text[96];
      std::snprintf(text, sizeof text, "%s %" PRIx64 "%s",
                    std::string(name_of(header->type)).c_str(), header->request.low,
                    (" #" + std::to_string(header->sequence)).c_str());
      using wire::MessageType;
      const bool differs =
          header->type == MessageType::kHeartbeat || header->type == MessageType::kMetricsReply ||
          header->type == MessageType::kLinkOffer || header->type == MessageType::kLinkOpen;
      return {text, !differs};
    }
    if (event.to == "router" && event.from != "router") {
      const auto outcome = wire::read_client_request(first);
      return {
          "request " + (outcome.request_id ? tail_of(wire::hex_of(*outcome.request_id)) : "") +
              (outcome.request.ok() ? " op " + std::to_string(static_cast<int>(outcome.request->op))
                                    : " bad: " + outcome.request.error().message),
          true};
    }
    if (auto answer = wire::read_client_answer(first); answer.ok()) {
      if (std::holds_alternative<wire::StatusReply>(*answer)) return {"status", false};
      if (std::holds_alternative<wire::MetricsText>(*answer)) return {"metrics", false};
      if (const auto* piece = std::get_if<wire::ClientPiece>(&*answer))
        return {"piece " + tail_of(piece->id) + " \"" + piece->text + "\"", true};
      if (const auto* reply = std::get_if<wire::ClientReply>(&*answer))
        return {
            "reply " + tail_of(reply->id) + " " + reply->finish_reason + " \"" + reply->text + "\"",
            true};
      if (const auto* error = std::get_if<wire::ClientError>(&*answer))
        return {
            "error " + tail_of(error->id) + " " + error->error.code + ": " + error->error.message,
            true};
      return {"tokens", true};
    }
    return {"unreadable", true};
  }
  static std::string tail_of(const std::string& id) {
    return id.substr(id.size() - std::min<std::size_t>(id.size(), 4));
  }

  World& world_;
  std::FILE* out_;
  Outcome::Counts& counts_;
  std::uint64_t hash_ = 0;
};

class Scenario {
 public:
  Scenario(std::uint64_t seed, std::FILE* trace)
      : dice_(seed * 0x9E3779B97F4A7C15ull + 13),
        world_(seed),
        trace_(world_, trace, outcome_.counts),
        begin_(world_.now()) {}

  Outcome run() {
    draw_services();
    draw_network();
    draw_clients();
    draw_troubles();
    world_.run_for(kTroublesLast);
    heal();
    const bool all = world_.run_until([&] { return is_content(); }, kAllAnsweredWithin);
    trace_.say(all ? "all clients have what they want" : "CLIENTS STILL WAIT");
    world_.run_for(kRest);
    look_for_leftovers();
    drain();
    outcome_.violations = violations(history_);
    count();
    return std::move(outcome_);
  }

 private:
  // ---- who is there

  void draw_services() {
    names_ = {"router"};
    const auto some = [&](const std::string& role, std::int64_t low, std::int64_t high) {
      const std::int64_t n = dice_.number(low, high);
      for (std::int64_t i = 0; i < n; ++i) names_.push_back(role + "-" + std::to_string(i));
    };
    some("tokenizer", 1, 2);
    some("draft", 0, 3);
    some("target", 1, 3);
    some("memory", 0, 1);
    RequestRules rules;
    if (dice_.chance(0.1)) rules.max_requests = static_cast<std::size_t>(dice_.number(3, 8));
    world_.set_rules(rules);
    const bool is_slow =
        dice_.chance(0.3);  // real models: steps of tens of ms, now and then seconds
    for (const std::string& name : names_) {
      Settings& settings = world_.settings(name);
      settings.pace.pass = is_slow ? dice_.time(milliseconds(2), milliseconds(20))
                                   : dice_.time(microseconds(100), microseconds(1500));
      settings.pace.row = is_slow ? dice_.time(microseconds(20), milliseconds(1))
                                  : dice_.time(microseconds(1), microseconds(50));
      if (dice_.chance(0.25)) {
        settings.pace.slow_chance = 0.01;
        settings.pace.slowest = dice_.time(milliseconds(200), milliseconds(2500));
        ++outcome_.counts.slow;
      }
      // One sequence of the longest length needs 50 blocks.
      settings.n_blocks = static_cast<std::int32_t>(dice_.chance(0.5) ? dice_.number(51, 80)
                                                                      : dice_.number(100, 400));
      settings.max_running = static_cast<std::int32_t>(dice_.number(2, 8));
      settings.max_waiting = static_cast<std::int32_t>(dice_.chance(0.1) ? 2 : 64);
      settings.prefill_chunk = static_cast<std::int32_t>(dice_.number(4, 64));
      settings.length = dice_.chance(0.5) ? LengthMode::kAdaptive : LengthMode::kFixed;
      settings.draft_error = dice_.chance(0.2) ? 3.0f : 0.4f;
      settings.max_chained = dice_.chance(0.5) ? 1 : kMaxDraftTokens;
      settings.has_link = dice_.chance(0.6);
      settings.run_ahead = dice_.chance(0.5) ? 16 : 0;
      settings.branch_rows = dice_.chance(0.5) ? 3 : 0;
    }
    // In any order, some much later.
    std::vector<std::string> order = names_;
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1],
                order[static_cast<std::size_t>(dice_.number(0, static_cast<int>(i) - 1))]);
    for (const std::string& name : order)
      at(dice_.chance(0.8) ? Duration{} : dice_.time({}, seconds(3)), [this, name] {
        trace_.say("start " + name);
        world_.start(name);
      });
  }

  // ---- the wire

  void draw_network() {
    LoopbackFaults faults;
    faults.min_delay = microseconds(dice_.number(20, 200));
    faults.max_delay =
        faults.min_delay + dice_.time({}, dice_.chance(0.3) ? milliseconds(40) : milliseconds(2));
    if (dice_.chance(0.5)) faults.drop = 0.001 * static_cast<double>(dice_.number(1, 60));
    if (dice_.chance(0.5)) faults.duplicate = 0.001 * static_cast<double>(dice_.number(1, 60));
    faults.in_order = dice_.chance(0.4);
    if (dice_.chance(0.3)) faults.capacity = static_cast<std::size_t>(dice_.number(2, 24));
    world_.set_faults(faults);
    if (dice_.chance(0.5)) {
      const auto room = static_cast<std::size_t>(dice_.number(200, 2000));
      world_.set_client_limits({room, 2 * room});
    }
    calm_ = faults;
    calm_.drop = calm_.duplicate = 0;
    calm_.capacity = 0;
  }

  // A client's connection is in order and loses nothing but all at once, when it breaks.
  void draw_client_wire(const std::string& name) {
    LoopbackFaults faults{.min_delay = microseconds(50),
                          .max_delay = dice_.time(microseconds(50), milliseconds(5)),
                          .in_order = true};
    world_.network().set_faults(name, "router", faults);
    if (dice_.chance(0.5)) faults.capacity = static_cast<std::size_t>(dice_.number(2, 20));
    world_.network().set_faults("router", name, faults);
    faults.capacity = 0;
    calm_of_clients_[name] = faults;
  }

  // ---- what is wanted

  void draw_clients() {
    const std::int64_t n_clients = dice_.number(1, 4);
    for (std::int64_t i = 0; i < n_clients; ++i) {
      const std::string name = "client-" + std::to_string(i);
      client_names_.push_back(name);
      draw_client_wire(name);
      Habits habits{.patience = dice_.time(milliseconds(800), seconds(6))};
      if (dice_.chance(0.2)) habits.leaves = begin_ + dice_.time(seconds(1), seconds(10));
      if (dice_.chance(0.4)) {
        habits.reads_not_from = begin_ + dice_.time({}, seconds(4));
        habits.reads_not_until = habits.reads_not_from + dice_.time(milliseconds(100), seconds(8));
      }
      clients_.push_back(std::make_unique<Customer>(world_, history_, name, habits));
    }
    const std::int64_t n = dice_.number(4, 16);
    for (std::int64_t i = 0; i < n; ++i) draw_wish(*dice_.one_of(raw(clients_)), i);
    outcome_.counts.requests = history_.promises.size();
  }

  void draw_wish(Customer& client, std::int64_t index) {
    Wish wish{.at = begin_ + dice_.time({}, kRequestsComeFor)};
    wire::ClientRequest& request = wish.request;
    request.request_id = RequestId{0xABCDEF, static_cast<std::uint64_t>(index) + 1};
    Promise promise{.id = wire::hex_of(*request.request_id),
                    // What a client is to ask again after, and what a full queue to it ends with.
                    .errors = {"unavailable", "queue_full", "draining", "cancelled"}};
    const std::int64_t kind = dice_.number(0, 99);
    draw_generation(request);
    if (kind < 8) {
      draw_mistake(request, promise);
    } else if (kind < 16) {
      request.op = dice_.chance(0.5) ? wire::ClientOp::kTokenize : wire::ClientOp::kDetokenize;
      ask_for_tokens(request, promise);
    } else {
      promise_answer(request, promise);
      if (dice_.chance(0.1)) wish.cancelled_after = dice_.time(milliseconds(1), seconds(2));
    }
    client.want(std::move(wish), std::move(promise));
  }

  void draw_generation(wire::ClientRequest& request) {
    const std::int64_t length = dice_.chance(0.2) ? dice_.number(60, 250) : dice_.number(1, 40);
    for (std::int64_t i = 0; i < length; ++i)
      request.prompt += static_cast<char>('a' + dice_.number(0, dice_.chance(0.5) ? 3 : 25));
    request.given = {"max_tokens", "temperature"};
    request.params.max_tokens = static_cast<std::uint32_t>(dice_.number(1, 100));
    request.params.temperature = dice_.chance(0.5) ? 0.0f : 0.9f;
    request.params.ignore_eos = dice_.chance(0.7);
    if (dice_.chance(0.2)) request.params.presence_penalty = 0.7f;
    if (dice_.chance(0.1)) {
      request.given.insert("top_k");
      request.params.top_k = 5;
    }
    if (dice_.chance(0.2))
      request.params.n_logprobs = static_cast<std::int32_t>(dice_.number(0, 3));
    if (dice_.chance(0.2)) {
      request.params.n_prompt_logprobs = static_cast<std::int32_t>(dice_.number(0, 3));
      if (dice_.chance(0.2)) request.params.max_tokens = 0;
    }
    if (dice_.chance(0.5)) {
      request.given.insert("seed");
      request.params.seed = dice_.bits();
    }
    if (dice_.chance(0.3))
      request.stop = {std::string(1, static_cast<char>('a' + dice_.number(0, 25))) + "b", "cde"};
    request.num_draft_tokens = static_cast<std::int32_t>(dice_.number(-1, 8));
    using enum ProposerKind;
    request.proposer = dice_.one_of(std::vector<ProposerSet>{kDefault,
                                                             kDefault,
                                                             kDraft,
                                                             {kDraft, kNgram},
                                                             {kDraft, kNgram, kPrediction},
                                                             {kDraft, kMemory},
                                                             kMemory,
                                                             kNgram,
                                                             kPrediction,
                                                             kNone});
    if (request.proposer.contains(kPrediction)) request.prediction = "q";  // never without
    request.adaptive = dice_.chance(0.5);
    request.stream = dice_.chance(0.5);
    if (dice_.chance(0.4))
      request.tenant = std::string("tenant-") + (dice_.chance(0.5) ? "a" : "b");
    if (dice_.chance(0.2)) request.priority = static_cast<std::uint8_t>(dice_.number(0, 3));
  }

  void promise_answer(wire::ClientRequest& request, Promise& promise) {
    const World::Reference plain = world_.reference(request, *request.request_id);
    promise.is_stream = request.stream;
    promise.ids = plain.ids;
    promise.text = plain.text;
    promise.finish_reason = plain.finish_reason;
    promise.prompt = plain.prompt;
    outcome_.counts.scored += plain.prompt.empty() ? 0 : 1;
    if (request.proposer.contains(ProposerKind::kPrediction) && !plain.text.empty()) {
      request.prediction = plain.text;
      if (request.prediction.size() > 4 && dice_.chance(0.6))
        request.prediction[request.prediction.size() / 2] = 'q';
    }
    if (dice_.chance(0.15)) {
      request.timeout_ms = static_cast<std::uint32_t>(dice_.number(20, 6000));
      promise.may_be_cut = true;
    }
  }

  void ask_for_tokens(wire::ClientRequest& request, Promise& promise) {
    const auto ids = *world_.tokenizer().encode(request.prompt, AddSpecialTokens::kYes);
    const std::string text = request.prompt;
    wire::ClientRequest plain{.op = request.op, .request_id = request.request_id};
    if (request.op == wire::ClientOp::kTokenize) {
      plain.prompt = text;
      promise.ids = ids;
    } else {
      plain.prompt_kind = wire::PromptKind::kTokens;
      plain.token_ids = ids;
      promise.text = text;
    }
    request = std::move(plain);
  }

  void draw_mistake(wire::ClientRequest& request, Promise& promise) {
    promise.is_stream = request.stream;
    switch (dice_.number(0, 3)) {
      case 0:
        request.params.temperature = -5;
        promise.refusal = "invalid_value";
        return;
      case 1:
        request.params.max_tokens = 4000;
        promise.refusal = "context_length_exceeded";
        return;
      case 2:
        request.model = "nobody-has-this";
        promise.refusal = "model_not_found";
        return;
      default:
        request.prompt_kind = wire::PromptKind::kTokens;
        request.prompt.clear();
        request.token_ids = {1, 2, kVocabulary + 7};
        promise.refusal = "invalid_value";
    }
  }

  // ---- what goes wrong

  void draw_troubles() {
    const std::int64_t n = dice_.chance(0.2) ? 0 : dice_.number(1, 6);
    for (std::int64_t i = 0; i < n; ++i) {
      const Duration when = dice_.time({}, kTroublesLast - seconds(2));
      // Targets more often: what they lose moves.
      const std::string victim = dice_.chance(0.3) ? "target-0" : dice_.one_of(names_);
      switch (dice_.number(0, 6)) {
        case 0:
        case 1:
          kill(when, victim);
          break;
        case 2:
          stop(when, victim);
          break;
        case 3:
          partition(when);
          break;
        case 4:
          break_connection(when);
          break;
        case 5:
          jump(when, victim);
          break;
        default:
          slow_down(when, victim);
      }
    }
    if (dice_.chance(0.2)) question(dice_.time({}, seconds(8)));
  }

  void kill(Duration when, const std::string& victim) {
    const Duration back = dice_.chance(0.5) ? dice_.time({}, milliseconds(300))
                                            : dice_.time(milliseconds(300), seconds(5));
    at(when, [this, victim] {
      trace_.say("kill " + victim);
      ++outcome_.counts.kills;
      world_.crash(victim);
    });
    at(when + back, [this, victim] {
      if (world_.runs(victim)) return;
      trace_.say("start " + victim);
      world_.start(victim);
    });
  }

  void stop(Duration when, const std::string& victim) {
    const Duration back = dice_.chance(0.5) ? dice_.time(milliseconds(50), milliseconds(900))
                                            : dice_.time(milliseconds(900), seconds(8));
    at(when, [this, victim] {
      if (!world_.runs(victim)) return;
      trace_.say("stop " + victim);
      ++outcome_.counts.stops;
      world_.host(victim).stop();
    });
    at(when + back, [this, victim] {
      if (!world_.runs(victim)) return;
      trace_.say("continue " + victim);
      world_.host(victim).resume();
    });
  }

  void partition(Duration when) {
    std::vector<std::string> here, there;
    for (const std::string& name : names_) (dice_.chance(0.5) ? here : there).push_back(name);
    const bool both = dice_.chance(0.6);
    const Duration back = dice_.time(milliseconds(100), seconds(6));
    const auto all = [this, here, there, both](auto&& what) {
      for (const std::string& a : here)
        for (const std::string& b : there) {
          what(a, b);
          if (both) what(b, a);
        }
    };
    at(when, [this, all] {
      trace_.say("cut");
      ++outcome_.counts.cuts;
      all([this](const std::string& a, const std::string& b) { world_.network().cut(a, b); });
    });
    at(when + back, [this, all] {
      trace_.say("heal");
      all([this](const std::string& a, const std::string& b) { world_.network().heal(a, b); });
    });
  }

  void break_connection(Duration when) {
    const std::string one = dice_.chance(0.4) ? dice_.one_of(client_names_) : dice_.one_of(names_);
    const std::string other = dice_.chance(0.6) ? "router" : dice_.one_of(names_);
    at(when, [this, one, other] {
      trace_.say("break " + one + " - " + other);
      ++outcome_.counts.breaks;
      world_.network().break_connections(one, other);
    });
  }

  void jump(Duration when, const std::string& victim) {
    const Duration ahead = dice_.time(milliseconds(100), seconds(30));
    at(when, [this, victim, ahead] {
      if (!world_.runs(victim)) return;
      trace_.say("clock of " + victim + " ahead");
      ++outcome_.counts.jumps;
      world_.host(victim).jump_clock(ahead);
    });
  }

  void slow_down(Duration when, const std::string& victim) {
    const double factor = static_cast<double>(dice_.number(3, 200));
    at(when, [this, victim, factor] {
      trace_.say("slow " + victim);
      world_.settings(victim).pace.factor = factor;
    });
    at(when + dice_.time(milliseconds(200), seconds(3)), [this, victim] {
      trace_.say("at pace " + victim);
      world_.settings(victim).pace.factor = 1;
    });
  }

  // A client asks for the status.
  void question(Duration when) {
    auto asker = std::make_shared<std::unique_ptr<LoopbackTransport>>(
        world_.network().make_transport("watcher"));
    const SocketId socket = (*asker)->connect(kClientEndpoint);
    for (int i = 0; i < 3; ++i)
      at(when + i * milliseconds(400), [asker, socket, i] {
        const wire::ClientRequest request{
            .op = i == 1 ? wire::ClientOp::kMetrics : wire::ClientOp::kStatus,
            .request_id = RequestId{7, 7}};
        (void)(*asker)->send({.socket = socket, .routing = {}},
                             {wire::write_client_request(request)});
        (void)(*asker)->send({.socket = socket, .routing = {}}, {"nonsense", "in", "parts"});
      });
    at(when + seconds(1), [asker] { asker->reset(); });
  }

  // ---- the end

  void heal() {
    trace_.say("everything heals");
    world_.network().heal();
    world_.set_faults(calm_);
    for (const auto& [name, calm] : calm_of_clients_)
      world_.network().set_faults("router", name, calm);
    for (auto& client : clients_) client->stop_cancelling();
    for (const std::string& name : names_) {
      Pace& pace = world_.settings(name).pace;
      pace.factor = 1;
      pace.slow_chance = 0;
      if (!world_.runs(name)) world_.start(name);
      world_.host(name).resume();
    }
  }

  bool is_content() const {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->is_content(); });
  }

  void look_for_leftovers() {
    for (const std::string& name : names_) {
      Program& program = world_.host(name).program();
      if (const std::string left = program.leftovers(); !left.empty())
        history_.leftovers.push_back(name + ": " + left);
      if (const std::string broken = program.broken_rule(); !broken.empty())
        history_.leftovers.push_back(name + " breaks a rule: " + broken);
    }
  }

  // What is kept in a private place keeps a service from being drained.
  void drain() {
    trace_.say("drain");
    for (const std::string& name : names_) world_.host(name).drain(2 * kDrainWithin);
    const bool all = world_.run_until(
        [&] {
          return std::all_of(names_.begin(), names_.end(),
                             [&](const std::string& name) { return world_.host(name).is_over(); });
        },
        kDrainWithin);
    if (all) return;
    for (const std::string& name : names_)
      if (!world_.host(name).is_over())
        history_.leftovers.push_back(name + ": not drained, " +
                                     world_.host(name).program().service().status());
  }

  void count() {
    Outcome::Counts& counts = outcome_.counts;
    for (const Sight& sight : history_.sights) counts.asks += sight.what == Saw::kAsked;
    const World::Counts router = world_.counts();
    counts.migrated = router.migrated;
    counts.cut = router.cut;
    counts.replayed = router.replayed;
    counts.joined = router.joined;
    counts.accepted = history_.n_accepted;
    counts.remembered = history_.n_remembered;
    counts.simulated_s = std::chrono::duration<double>(world_.now() - begin_).count();
    outcome_.trace = trace_.hash();
  }

  void at(Duration after, std::function<void()> what) {
    world_.at(begin_ + after, std::move(what));
  }

  static std::vector<Customer*> raw(const std::vector<std::unique_ptr<Customer>>& clients) {
    std::vector<Customer*> list;
    for (const auto& client : clients) list.push_back(client.get());
    return list;
  }

  Outcome outcome_;
  Dice dice_;
  World world_;
  Trace trace_;
  History history_;
  TimePoint begin_;
  std::vector<std::string> names_, client_names_;
  std::vector<std::unique_ptr<Customer>> clients_;
  LoopbackFaults calm_;
  std::map<std::string, LoopbackFaults> calm_of_clients_;
};

}  // namespace

Outcome run_seed(std::uint64_t seed, std::FILE* trace) { return Scenario(seed, trace).run(); }

}  // namespace foretoken::test
