// Holds the table of a request's states and events in docs/protocol.md: the test reads the table
// and drives a request through every cell of it, so that neither can change alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "services/router/request_table.h"

namespace foretoken {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr WorkerId kTokenizerAt{1}, kTargetAt{2}, kSpareTokenizer{3}, kSpareTarget{4};
constexpr RequestId kAsked{0, 77};
constexpr const char* kEnd = "END";

// What is sent for a request, by name; pieces and answers to the client in lower case.
std::string name_of_action(const Action& action) {
  if (const auto* to = std::get_if<ToClient>(&action)) {
    if (std::holds_alternative<wire::ClientPiece>(to->answer)) return "piece";
    return std::holds_alternative<wire::ClientReply>(to->answer) ? "reply" : "error";
  }
  const wire::Message& message = std::get<ToWorker>(action).message;
  if (std::holds_alternative<wire::Encode>(message)) return "ENCODE";
  if (std::holds_alternative<wire::Open>(message)) return "OPEN";
  if (std::holds_alternative<wire::Close>(message)) return "CLOSE";
  if (std::holds_alternative<wire::StreamOpen>(message)) return "STREAM_OPEN";
  if (std::holds_alternative<wire::StreamClose>(message)) return "STREAM_CLOSE";
  return std::holds_alternative<wire::Decode>(message) ? "DECODE" : "another message";
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// One request in one state; the test plays its workers and its client.
class Scene {
 public:
  explicit Scene(const std::string& state) {
    join(kTokenizerAt, wire::Role::kTokenizer, "tokenizer-0");
    join(kTargetAt, wire::Role::kTarget, "target-0");
    submit(5);
    if (state == "PLACING") lose(kTargetAt);
    if (state != "ENCODING") encoded();
    if (state != "ENCODING" && state != "PLACING") {
      hear(kTargetAt, wire::Tokens{.position = 3, .ids = {20, 21}});
      hear(kTokenizerAt, wire::Text{.next = 4, .text = "a", .offset = 0});
    }
    if (state == "FLUSHING") done(FinishReason::kLength);
    if (state == "COUNTING") text(true, false);
    out.clear();
  }

  void join(WorkerId id, wire::Role role, const std::string& name) {
    wire::Header header;
    header.sender = id;
    header.incarnation = Incarnation{1};
    wire::Hello hello{.role = role,
                      .name = name,
                      .fingerprints = {1, 2, 3, 4},
                      .model_name = "m",
                      .vocab_size = 1000,
                      .end_tokens = {0},
                      .max_model_len = 100,
                      .max_sequences = 8};
    if (role == wire::Role::kTokenizer) hello.fingerprints = {1, 2, 0, 0};
    pool.hello(header, {.socket = 1, .routing = name}, hello, now);
  }
  void lose(WorkerId id) {
    pool.find(id)->state = wire::WorkerState::kGone;
    table.worker_lost(id, now, out);
  }
  void submit(std::uint64_t content) {
    wire::ClientRequest request;
    request.prompt = "hello";
    request.stream = true;
    request.timeout_ms = 60000;
    request.params.max_tokens = 3;
    request.given.insert("max_tokens");
    table.submit(client, kAsked, std::move(request), content, now, out);
  }
  void hear(WorkerId from, wire::Message message) {
    table.on_message(from, kAsked, std::move(message), now, out);
  }
  void encoded() { hear(kTokenizerAt, wire::Encoded{.tokens = {10, 11, 12}}); }
  void done(FinishReason reason) {
    hear(kTargetAt, wire::Done{.reason = reason, .n_generated = 2});
  }
  void text(bool stopped, bool final) {
    hear(kTokenizerAt, wire::Text{.next = 5,
                                  .text = "b",
                                  .stopped = stopped,
                                  .stop_string = stopped ? "b" : "",
                                  .n_tokens = 1,
                                  .final = final,
                                  .offset = 1});
  }
  void advance(Duration by) {
    now += by;
    table.tick(now, out);
  }

  // What was sent since the last call.
  std::string sent() {
    std::set<std::string> names;
    for (const Action& action : out) names.insert(name_of_action(action));
    out.clear();
    return joined(names);
  }
  // Looks from outside, and disturbs the request: the last thing that is done to it.
  std::string state() {
    if (!table.contains(kAsked)) return kEnd;
    if (table.n_waiting() > 0) {  // only a prompt that is being encoded goes to another tokenizer
      join(WorkerId{8}, wire::Role::kTarget, "target-8");
      join(WorkerId{9}, wire::Role::kTokenizer, "tokenizer-9");
      for (const WorkerId id : {kTokenizerAt, kSpareTokenizer})
        if (pool.find(id) != nullptr) lose(id);
      table.workers_changed(now, out);
      return sent().find("ENCODE") == std::string::npos ? "PLACING" : "ENCODING";
    }
    const WorkerId at = pool.find(kTargetAt)->n_placed > 0 ? kTargetAt : kSpareTarget;
    const bool has_target = pool.find(at) != nullptr && table.needs(*pool.find(at));
    if (!has_target) return "FLUSHING";
    lose(at);  // the counts that one waited for will not come
    return table.contains(kAsked) ? "RUNNING" : "COUNTING";
  }

  TimePoint now = TimePoint{} + seconds(1000);
  Pool pool{milliseconds(250)};
  RequestTable table{RequestRules{}, pool};
  Actions out;
  const Peer client{.socket = 2, .routing = "c"};
};

using Event = std::function<void(Scene&)>;

std::map<std::string, std::vector<Event>> events() {
  using S = Scene;
  const auto tokenizer_comes = [](S& s) {
    s.join(kSpareTokenizer, wire::Role::kTokenizer, "tokenizer-1");
    s.table.workers_changed(s.now, s.out);
  };
  const auto target_comes = [](S& s) {
    s.join(kSpareTarget, wire::Role::kTarget, "target-1");
    s.table.workers_changed(s.now, s.out);
  };
  const auto failed = [](WorkerId from, ErrorCode code) {
    return [=](S& s) { s.hear(from, wire::Failed{.code = code, .message = "no"}); };
  };
  return {
      {"ENCODED", {[](S& s) { s.encoded(); }}},
      {"FAILED by the tokenizer", {failed(kTokenizerAt, ErrorCode::kInvalidValue)}},
      {"TOKENS that follow",
       {[](S& s) { s.hear(kTargetAt, wire::Tokens{.position = 5, .ids = {22}}); }}},
      {"TOKENS behind a gap",
       {[](S& s) { s.hear(kTargetAt, wire::Tokens{.position = 9, .ids = {22}}); }}},
      {"DONE", {[](S& s) { s.done(FinishReason::kLength); }}},
      {"DONE (cancelled)", {[](S& s) { s.done(FinishReason::kCancelled); }}},
      {"BUSY of the only target", {[](S& s) {
         s.hear(kTargetAt, wire::Busy{.code = ErrorCode::kQueueFull, .message = "full"});
       }}},
      {"FAILED by the target", {failed(kTargetAt, ErrorCode::kInvalidValue)}},
      {"FAILED (draining, unavailable)",
       {failed(kTargetAt, ErrorCode::kDraining), failed(kTargetAt, ErrorCode::kUnavailable)}},
      {"TEXT", {[](S& s) { s.text(false, false); }}},
      {"TEXT, final", {[](S& s) { s.text(false, true); }}},
      {"TEXT, stop string", {[](S& s) { s.text(true, false); }}},
      {"silence", {[](S& s) { s.advance(milliseconds(500)); }}},
      {"deadline", {[](S& s) { s.advance(milliseconds(60500)); }}},
      {"cancel", {[](S& s) { s.table.cancel(s.client, kAsked, s.now, s.out); }}},
      {"connection gone", {[](S& s) { s.table.client_gone(s.client, s.now, s.out); }}},
      {"end of the drain",
       {[](S& s) {
          s.table.give_up(kAsked, {ErrorCode::kDraining, "stops"}, s.now, s.out);
        },
        [](S& s) {
          s.table.fail_all({ErrorCode::kDraining, "stops"}, s.now, s.out);
        }}},
      {"asked again", {[](S& s) { s.submit(5); }}},
      {"other request, same id", {[](S& s) { s.submit(6); }}},
      {"tokenizer gone", {[](S& s) { s.lose(kTokenizerAt); }}},
      {"tokenizer gone, another comes",
       {[=](S& s) {
          s.lose(kTokenizerAt);
          tokenizer_comes(s);
        },
        [=](S& s) {
          tokenizer_comes(s);
          s.lose(kTokenizerAt);
        }}},
      {"target gone", {[](S& s) { s.lose(kTargetAt); }}},
      {"a target comes", {target_comes}},
      {"target gone, another comes", {[=](S& s) {
         s.lose(kTargetAt);
         target_comes(s);
       }}},
      {"anything else",
       {[](S& s) { s.hear(kTokenizerAt, wire::Opened{.n_waiting = 3}); },
        [](S& s) { s.hear(kTokenizerAt, wire::Tokens{.position = 0, .ids = {}}); },
        [](S& s) { s.hear(kTargetAt, wire::Text{.next = 5, .text = "b", .offset = 1}); },
        [](S& s) { s.hear(kSpareTokenizer, wire::Encoded{.tokens = {1}}); },
        [](S& s) { s.hear(kSpareTarget, wire::Done{.n_generated = 2}); },
        [](S& s) { s.table.begin_drain(s.now, s.out); }, tokenizer_comes}},
  };
}

std::string trimmed(const std::string& text) {
  const auto from = text.find_first_not_of(' ');
  return from == std::string::npos ? "" : text.substr(from, text.find_last_not_of(' ') - from + 1);
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line.substr(1));
  for (std::string cell; std::getline(stream, cell, '|');) cells.push_back(trimmed(cell));
  return cells;
}

// The table under its heading: the first line names the states, the second only draws.
std::vector<std::vector<std::string>> table_in_document() {
  std::ifstream file(std::string(FORETOKEN_SOURCE_DIR) + "/docs/protocol.md");
  std::vector<std::vector<std::string>> lines;
  bool here = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) here = line == "### A request, as the router sees it";
    if (here && line.starts_with("|")) lines.push_back(cells_of(line));
  }
  if (lines.size() > 1) lines.erase(lines.begin() + 1);
  return lines;
}

// "–": nothing is sent and the state stays. "OPEN, piece → RUNNING": both are sent, in any order.
std::pair<std::string, std::string> meaning_of(const std::string& cell, const std::string& state) {
  const std::string arrow = "→", none = "–";
  const auto at = cell.find(arrow);
  std::istringstream stream(cell.substr(0, at));
  std::set<std::string> words;
  for (std::string word; std::getline(stream, word, ',');)
    if (word = trimmed(word); !word.empty() && word != none) words.insert(word);
  return {joined(words), at == std::string::npos ? state : trimmed(cell.substr(at + arrow.size()))};
}

TEST(RequestStates, EveryCellOfTheDocumentIsWhatARequestDoes) {
  const auto lines = table_in_document();
  ASSERT_GT(lines.size(), 1u) << "no table in docs/protocol.md";
  const std::vector<std::string>& states = lines[0];
  ASSERT_EQ(
      (std::vector<std::string>{"event", "ENCODING", "PLACING", "RUNNING", "FLUSHING", "COUNTING"}),
      states);
  auto known = events();
  for (std::size_t i = 1; i < lines.size(); ++i) {
    ASSERT_EQ(states.size(), lines[i].size()) << lines[i][0];
    const auto event = known.find(lines[i][0]);
    ASSERT_NE(known.end(), event) << "not an event, or a second line of it: " << lines[i][0];
    for (std::size_t column = 1; column < states.size(); ++column)
      for (std::size_t way = 0; way < event->second.size(); ++way) {
        SCOPED_TRACE(lines[i][0] + " (" + std::to_string(way) + ") in " + states[column]);
        const auto [sent, next] = meaning_of(lines[i][column], states[column]);
        Scene scene(states[column]);
        event->second[way](scene);
        scene.advance(milliseconds(32));
        EXPECT_EQ(sent, scene.sent());
        EXPECT_EQ(next, scene.state());
      }
    known.erase(event);
  }
  for (const auto& [name, ways] : known) ADD_FAILURE() << "not in the table: " << name;
}

TEST(RequestStates, ASceneBeginsInItsState) {
  for (const char* state : {"ENCODING", "PLACING", "RUNNING", "FLUSHING", "COUNTING"})
    EXPECT_EQ(state, Scene(state).state());
}

}  // namespace
}  // namespace foretoken
