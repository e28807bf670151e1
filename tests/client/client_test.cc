// A client's connection: which keys it uses where, how soon it knows that no router is there,
// and what becomes of a request whose router goes away.
#include "common/client/client.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <stop_token>
#include <thread>

#include "common/messages/limits.h"
#include "common/transport/zmq_auth.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using namespace std::chrono_literals;

TEST(ClientOptions, OverTcpTheConfiguredKeyIsUsedAndOnIpcNone) {
  BusSection bus;
  bus.curve_secret = "/etc/foretoken/tool.key";
  bus.curve_peers = "/etc/foretoken/peers";
  bus.client = "ipc:///run/foretoken/client";
  EXPECT_EQ(client_options(bus).curve_secret_file, "");
  bus.insecure = true;
  for (const char* tcp : {"tcp://127.0.0.1:5555", "tcp://[::1]:5555", "tcp://10.1.2.3:5555"}) {
    bus.client = tcp;
    EXPECT_EQ(client_options(bus).curve_secret_file, bus.curve_secret) << tcp;
    EXPECT_EQ(client_options(bus).curve_peers_file, bus.curve_peers) << tcp;
    EXPECT_TRUE(client_options(bus).insecure) << tcp;
  }
}

TEST(Client, RefusesToSpeakBeyondThisHostWithoutKeys) {
  BusSection bus;
  bus.client = "tcp://10.1.2.3:5555";
  EXPECT_THROW(Client{bus}, FatalError);
}

// The deadline is an hour: only the kernel's refusal can end this.
TEST(Client, KnowsThatNoRouterListens) {
  test::TempFolder folder;
  BusSection bus;
  for (const std::string& endpoint :
       {std::string("tcp://127.0.0.1:1"), "ipc://" + (folder.path() / "none").string()}) {
    bus.client = endpoint;
    Client client(bus);
    const auto status = client.status(std::chrono::steady_clock::now() + 1h);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(status.error().message, ::testing::EndsWith("at " + endpoint));
  }
}

// A listening socket of which nothing is ever read, as that of a stopped router.
class SilentListener {
 public:
  explicit SilentListener(const std::string& path) {  // "": TCP, any port of 127.0.0.1
    sockaddr_un local{.sun_family = AF_UNIX};
    sockaddr_in inet{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    path.copy(local.sun_path, sizeof(local.sun_path) - 1);
    auto* address =
        path.empty() ? reinterpret_cast<sockaddr*>(&inet) : reinterpret_cast<sockaddr*>(&local);
    socklen_t size = path.empty() ? sizeof(inet) : sizeof(local);
    fd_ = ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::bind(fd_, address, size), 0) << std::strerror(errno);
    EXPECT_EQ(::listen(fd_, 16), 0) << std::strerror(errno);
    if (path.empty()) ::getsockname(fd_, address, &size);
    endpoint_ =
        path.empty() ? "tcp://127.0.0.1:" + std::to_string(ntohs(inet.sin_port)) : "ipc://" + path;
  }
  SilentListener(const SilentListener&) = delete;
  SilentListener& operator=(const SilentListener&) = delete;
  ~SilentListener() { ::close(fd_); }

  const std::string& endpoint() const { return endpoint_; }

 private:
  int fd_ = -1;
  std::string endpoint_;
};

TEST(Client, SaysThatConnectionsAreAcceptedWhereNoRouterAnswers) {
  test::TempFolder folder;
  for (const std::string& path : {std::string(), (folder.path() / "silent").string()}) {
    const SilentListener silent(path);
    BusSection bus;
    bus.client = silent.endpoint();
    Client client(bus);
    const auto status = client.status(std::chrono::steady_clock::now() + 200ms);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(status.error().message,
                ::testing::HasSubstr("at " + bus.client + ", where connections are accepted"));
  }
}

// The deadline is an hour: only what the door says can end this.
TEST(Client, SaysThatTheDoorWantsAKeyOrAnother) {
  test::TempFolder folder;
  const auto in = [&](const char* name) { return (folder.path() / name).string(); };
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(in(name)) << text;
    ::chmod(in(name).c_str(), 0600);
  };
  const CurveKeys router = new_curve_keys(), stranger = new_curve_keys(), draft = new_curve_keys();
  write("router.key", curve_key_file(router));
  write("stranger.key", curve_key_file(stranger));
  write("draft.key", curve_key_file(draft));
  write("peers", draft.public_key + " draft:draft-0\n");
  BusSection bus;
  {
    ZmqTransport door(ZmqOptions{in("router.key"), in("peers"), false});
    const SocketId bound = door.bind("tcp://127.0.0.1:*", foretoken::Door::kClient);
    bus.client = door.endpoint(bound);
    write("client.peers", router.public_key + " router:router-0 " + bus.client + "\n");
    std::jthread serving([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) (void)door.receive(std::chrono::steady_clock::now() + 10ms);
    });
    for (const auto& [key, words] :
         {std::pair{"", "takes only clients with a key; set bus.curve_secret"},
          std::pair{"stranger.key", "must list that key as client:NAME or tool:NAME"},
          std::pair{"draft.key", "must list that key as client:NAME or tool:NAME"}}) {
      bus.curve_secret = *key == '\0' ? "" : in(key);
      bus.curve_peers = *key == '\0' ? "" : in("client.peers");
      Client client(bus);
      const auto status = client.status(std::chrono::steady_clock::now() + 1h);
      ASSERT_FALSE(status.ok()) << key;
      EXPECT_EQ(status.error().code, ErrorCode::kConfig) << key;
      EXPECT_THAT(status.error().message, ::testing::HasSubstr(words)) << key;
      EXPECT_THAT(status.error().message, ::testing::HasSubstr(bus.client)) << key;
    }
  }
}

TEST(Client, SaysThatTheDoorHasNoKeys) {
  test::TempFolder folder;
  const auto in = [&](const char* name) { return (folder.path() / name).string(); };
  const CurveKeys own = new_curve_keys();
  ZmqTransport door;
  BusSection bus;
  bus.client = door.endpoint(door.bind("tcp://127.0.0.1:*", foretoken::Door::kClient));
  std::ofstream(in("own.key")) << curve_key_file(own);
  std::ofstream(in("peers")) << new_curve_keys().public_key << " router:router-0 " << bus.client
                             << "\n";
  for (const char* name : {"own.key", "peers"}) ::chmod(in(name).c_str(), 0600);
  bus.curve_secret = in("own.key");
  bus.curve_peers = in("peers");
  std::jthread serving([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) (void)door.receive(std::chrono::steady_clock::now() + 10ms);
  });
  Client client(bus);
  const auto status = client.status(std::chrono::steady_clock::now() + 1h);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kConfig);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("has no keys"));
}

// A router's client door that can be killed and brought back at the same address, in the client's
// own thread.
class Door {
 public:
  explicit Door(std::string endpoint) : endpoint_(std::move(endpoint)) { open(); }
  void open() {
    transport_ = std::make_unique<ZmqTransport>();
    transport_->bind(endpoint_, foretoken::Door::kClient);
  }
  void kill() { transport_.reset(); }
  // The next request's bytes; the client is given time to act in between.
  std::string request(Client& client) {
    const TimePoint limit = std::chrono::steady_clock::now() + 30s;
    while (std::chrono::steady_clock::now() < limit) {
      if (auto delivery = transport_->receive(std::chrono::steady_clock::now() + 10ms)) {
        peer_ = delivery->peer;
        return delivery->frames.back();
      }
      const auto early = client.receive(std::chrono::steady_clock::now());
      EXPECT_FALSE(early) << "an answer before anything was answered";
    }
    ADD_FAILURE() << "no request came";
    return {};
  }
  void answer(const wire::ClientAnswer& answer) {
    EXPECT_EQ(transport_->send(peer_, Frames{wire::write_client_answer(answer)}),
              SendResult::kSent);
  }

 private:
  std::string endpoint_;
  std::unique_ptr<ZmqTransport> transport_;
  Peer peer_;
};

struct LostConnection : ::testing::Test {
  BusSection bus() {
    BusSection section;
    section.client = "ipc://" + (folder.path() / "client").string();
    return section;
  }
  static TimePoint soon() { return std::chrono::steady_clock::now() + 30s; }
  static wire::ClientPiece piece(RequestId id, std::string text, std::vector<TokenId> tokens) {
    return {.id = wire::hex_of(id), .text = std::move(text), .token_ids = std::move(tokens)};
  }
  static wire::ClientReply reply(RequestId id, std::string text, std::vector<TokenId> tokens) {
    return {.id = wire::hex_of(id),
            .text = std::move(text),
            .token_ids = std::move(tokens),
            .finish_reason = "stop"};
  }
  // Reads until the last answer; pieces go to `text` and `tokens`.
  static wire::ClientAnswer last_answer(Client& client,
                                        std::string& text,
                                        std::vector<TokenId>& tokens) {
    while (auto answer = client.receive(soon())) {
      if (!answer->ok()) break;
      const auto add = [&](const auto& part) {
        text += part.text;
        tokens.insert(tokens.end(), part.token_ids.begin(), part.token_ids.end());
      };
      if (const auto* some = std::get_if<wire::ClientPiece>(&**answer)) {
        EXPECT_FALSE(some->text.empty() && some->token_ids.empty());
        add(*some);
        continue;
      }
      if (const auto* all = std::get_if<wire::ClientReply>(&**answer)) add(*all);
      return **answer;
    }
    ADD_FAILURE() << "no last answer";
    return wire::ClientError{};
  }

  test::TempFolder folder;
  wire::ClientRequest question{.prompt = "Once", .stream = true};
};

TEST_F(LostConnection, AStreamIsAskedAgainUnderItsIdAndContinuesWhereItWas) {
  Door door(bus().client);
  Client client(bus());
  const auto id = client.send(question, soon());
  ASSERT_TRUE(id.ok());
  const std::string first = door.request(client);
  door.answer(piece(*id, " upon a", {1, 2}));
  std::string text;
  std::vector<TokenId> tokens;
  const auto begin = client.receive(soon());
  ASSERT_TRUE(begin && begin->ok());
  text = std::get<wire::ClientPiece>(**begin).text;
  tokens = std::get<wire::ClientPiece>(**begin).token_ids;

  door.kill();
  door.open();
  EXPECT_EQ(door.request(client), first);
  EXPECT_EQ(client.n_asked_again(), 1U);
  // The second telling comes in other pieces: all old, half new, the rest with the reply.
  door.answer(piece(*id, " up", {1}));
  door.answer(piece(*id, "on a ti", {2, 3}));
  door.answer(reply(*id, "me", {4}));
  const auto end = last_answer(client, text, tokens);
  EXPECT_TRUE(std::holds_alternative<wire::ClientReply>(end));
  EXPECT_EQ(text, " upon a time");
  EXPECT_EQ(tokens, (std::vector<TokenId>{1, 2, 3, 4}));
}

TEST_F(LostConnection, AFinishedReplyThatIsGivenAgainWholeIsCutToo) {
  Door door(bus().client);
  Client client(bus());
  const auto id = client.send(question, soon());
  ASSERT_TRUE(id.ok());
  (void)door.request(client);
  door.answer(piece(*id, "abc", {1, 2, 3}));
  ASSERT_TRUE(client.receive(soon()));
  door.kill();
  door.open();
  (void)door.request(client);
  door.answer(reply(*id, "abcd", {1, 2, 3, 4}));
  std::string text;
  std::vector<TokenId> tokens;
  (void)last_answer(client, text, tokens);
  EXPECT_EQ(text, "d");
  EXPECT_EQ(tokens, (std::vector<TokenId>{4}));
}

TEST_F(LostConnection, AnotherTextIsAnErrorAndNotSplicedIn) {
  Door door(bus().client);
  Client client(bus());
  const auto id = client.send(question, soon());
  ASSERT_TRUE(id.ok());
  (void)door.request(client);
  door.answer(piece(*id, "abc", {1}));
  ASSERT_TRUE(client.receive(soon()));
  door.kill();
  door.open();
  (void)door.request(client);
  door.answer(piece(*id, "abd", {1}));
  std::string text;
  std::vector<TokenId> tokens;
  const auto end = last_answer(client, text, tokens);
  ASSERT_TRUE(std::holds_alternative<wire::ClientError>(end));
  EXPECT_EQ(std::get<wire::ClientError>(end).error.code, "internal");
}

TEST_F(LostConnection, OnlyWhatHasNoLastAnswerIsAskedAgainAndNothingThatWasCancelledOrForgotten) {
  Door door(bus().client);
  Client client(bus());
  const auto answered = client.send(question, soon());
  (void)door.request(client);
  door.answer(reply(*answered, "x", {1}));
  ASSERT_TRUE(client.receive(soon()));
  const auto forgotten = client.send(question, soon());
  (void)door.request(client);
  client.forget(*forgotten);
  const auto cancelled = client.send(question, soon());
  (void)door.request(client);
  wire::ClientRequest cancel;
  cancel.op = wire::ClientOp::kCancel;
  cancel.request_id = *cancelled;
  ASSERT_TRUE(client.send(cancel, soon()).ok());
  (void)door.request(client);
  const auto open = client.send(question, soon());
  const std::string bytes = door.request(client);
  door.kill();
  // The router that was to answer it with what there is has gone.
  const auto end = client.receive(soon());
  ASSERT_TRUE(end && end->ok());
  const auto* error = std::get_if<wire::ClientError>(&**end);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->id, wire::hex_of(*cancelled));
  EXPECT_EQ(error_from(*error).code, ErrorCode::kCancelled);
  door.open();
  EXPECT_EQ(door.request(client), bytes);
  EXPECT_EQ(client.n_asked_again(), 1U);
}

TEST_F(LostConnection, WithoutARouterItSaysWhatIsWaitedForAndEnds) {
  Door door(bus().client);
  std::vector<std::string> said;
  Client client(bus(), {.longest = 200ms, .silent = 0ms, .say = [&](const std::string& words) {
                          said.push_back(words);
                        }});
  const auto id = client.send(question, soon());
  ASSERT_TRUE(id.ok());
  (void)door.request(client);
  door.kill();
  const auto end = client.receive(soon());
  ASSERT_TRUE(end && end->ok());
  const auto* error = std::get_if<wire::ClientError>(&**end);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->id, wire::hex_of(*id));
  EXPECT_EQ(error_from(*error).code, ErrorCode::kUnavailable);
  EXPECT_THAT(error->error.message, ::testing::HasSubstr(bus().client));
  EXPECT_THAT(said, ::testing::ElementsAre(::testing::HasSubstr("was lost; waiting")));
}

TEST_F(LostConnection, ARequestThatLosesEveryRouterEnds) {
  Door door(bus().client);
  Client client(bus());
  const auto id = client.send(question, soon());
  ASSERT_TRUE(id.ok());
  (void)door.request(client);
  for (int i = 0; i < kMostTimesAskedAgain; ++i) {
    door.kill();
    door.open();
    (void)door.request(client);
  }
  door.kill();
  door.open();
  std::string text;
  std::vector<TokenId> tokens;
  const auto end = last_answer(client, text, tokens);
  ASSERT_TRUE(std::holds_alternative<wire::ClientError>(end));
  EXPECT_EQ(error_from(std::get<wire::ClientError>(end)).code, ErrorCode::kUnavailable);
}

// One id asked twice on one connection: pieces of the first telling are under way before the second
// begins.
struct SameConnection : LostConnection {
  template <class Part>
  static Part placed(Part part, std::uint32_t position, std::uint32_t offset) {
    part.position = position;
    part.offset = offset;
    return part;
  }
};

TEST_F(SameConnection, AskedAgainInTheMiddleItIsExactlyTheAnswer) {
  Door door(bus().client);
  Client client(bus());
  const auto id = client.send(question, soon());
  ASSERT_TRUE(id.ok());
  (void)door.request(client);
  door.answer(placed(piece(*id, " up", {1, 2}), 0, 0));
  std::string text;
  std::vector<TokenId> tokens;
  const auto begin = client.receive(soon());
  ASSERT_TRUE(begin && begin->ok());
  text = std::get<wire::ClientPiece>(**begin).text;
  tokens = std::get<wire::ClientPiece>(**begin).token_ids;
  wire::ClientRequest again = question;
  again.request_id = *id;
  ASSERT_TRUE(client.send(again, soon()).ok());
  (void)door.request(client);
  door.answer(placed(piece(*id, "on a", {3}), 2, 3));
  door.answer(placed(piece(*id, " upon a t", {1, 2, 3, 4}), 0, 0));
  door.answer(placed(reply(*id, "ime", {5}), 4, 9));
  const auto end = last_answer(client, text, tokens);
  ASSERT_TRUE(std::holds_alternative<wire::ClientReply>(end));
  EXPECT_EQ(std::get<wire::ClientReply>(end).position, 4U);
  EXPECT_EQ(text, " upon a time");
  EXPECT_EQ(tokens, (std::vector<TokenId>{1, 2, 3, 4, 5}));
}

TEST_F(SameConnection, WhatOnlyTheFirstPieceHasComesOnceIfItIsToldTwice) {
  Door door(bus().client);
  Client client(bus());
  const auto id = client.send(question, soon());
  ASSERT_TRUE(id.ok());
  (void)door.request(client);
  for (const char* text : {" up", " upon"}) {
    auto first = placed(piece(*id, text, {1, 2}), 0, 0);
    first.prompt_logprobs = {{.token_id = 7}, {.token_id = 8, .logprob = -1.5}};
    first.prompt_token_ids = {7, 8};
    first.form = wire::AnswerForm{.begun = "<think>"};
    first.model = "demo";
    door.answer(first);
  }
  door.answer(placed(reply(*id, " a time", {5}), 2, 5));
  std::size_t n_logprobs = 0, n_ids = 0, n_forms = 0, n_models = 0;
  while (true) {
    const auto part = client.receive(soon());
    ASSERT_TRUE(part && part->ok());
    const auto* some = std::get_if<wire::ClientPiece>(&**part);
    if (some == nullptr) break;
    n_logprobs += some->prompt_logprobs.size();
    n_ids += some->prompt_token_ids.size();
    n_forms += some->form ? 1 : 0;
    n_models += some->model.empty() ? 0 : 1;
  }
  EXPECT_EQ(n_logprobs, 2U);
  EXPECT_EQ(n_ids, 2U);
  EXPECT_EQ(n_forms, 1U);
  EXPECT_EQ(n_models, 1U);
}

// Of a whole answer with log-probabilities; a message between services has at most 4 MiB.
TEST_F(SameConnection, AnAnswerMayBeLargerThanAMessageBetweenServices) {
  Door door(bus().client);
  Client client(bus());
  const auto id = client.send(question, soon());
  ASSERT_TRUE(id.ok());
  (void)door.request(client);
  auto whole = reply(*id, "x", std::vector<TokenId>(50'000, 1));
  whole.logprobs.assign(50'000, wire::LogprobEntry{.token_id = 1, .logprob = -1.5, .token = "x"});
  ASSERT_GT(wire::write_client_answer(whole).size(), wire::kMaxInternalPartBytes);
  door.answer(whole);
  const auto end = client.receive(soon());
  ASSERT_TRUE(end && end->ok());
  ASSERT_TRUE(std::holds_alternative<wire::ClientReply>(**end));
  EXPECT_EQ(std::get<wire::ClientReply>(**end).logprobs.size(), 50'000U);
  EXPECT_EQ(client.n_asked_again(), 0U);
}

TEST_F(SameConnection, WhatBeginsBehindWhatWeHaveIsNotTaken) {
  Door door(bus().client);
  Client client(bus());
  const auto id = client.send(question, soon());
  ASSERT_TRUE(id.ok());
  (void)door.request(client);
  door.answer(placed(piece(*id, "b", {2}), 1, 1));  // of a telling before this client asked
  door.answer(placed(piece(*id, "ab", {1, 2}), 0, 0));
  door.answer(placed(reply(*id, "d", {4}), 3, 3));
  std::string text;
  std::vector<TokenId> tokens;
  const auto end = last_answer(client, text, tokens);
  EXPECT_EQ(text, "ab");
  ASSERT_TRUE(std::holds_alternative<wire::ClientError>(end)) << "token 3 never came";
  EXPECT_EQ(std::get<wire::ClientError>(end).error.code, "internal");
}

// The edge posts and goes on: nothing there waits for a connection.
using Posted = LostConnection;

TEST_F(Posted, LeavesWhenTheRouterComes) {
  Client client(bus());
  const auto id = client.post(question);
  ASSERT_TRUE(id.ok());
  EXPECT_FALSE(client.next());
  Door door(bus().client);
  (void)door.request(client);
  door.answer(reply(*id, "a", {1}));
  const auto end = client.receive(soon());
  ASSERT_TRUE(end && end->ok());
  EXPECT_TRUE(std::holds_alternative<wire::ClientReply>(**end));
}

TEST_F(Posted, EndsAsUnavailableWhereNoRouterComes) {
  Client client(bus(), {.longest = 50ms});
  const auto id = client.post(question);
  ASSERT_TRUE(id.ok());
  const auto end = client.receive(soon());
  ASSERT_TRUE(end && end->ok());
  ASSERT_TRUE(std::holds_alternative<wire::ClientError>(**end));
  EXPECT_EQ(std::get<wire::ClientError>(**end).id, wire::hex_of(*id));
  EXPECT_EQ(error_from(std::get<wire::ClientError>(**end)).code, ErrorCode::kUnavailable);
}

TEST_F(Posted, CancelledBeforeItLeftNeverLeaves) {
  Client client(bus());
  const auto first = client.post(question);
  const auto second = client.post(question);
  ASSERT_TRUE(first.ok() && second.ok());
  client.cancel(*first);
  const auto end = client.receive(soon());
  ASSERT_TRUE(end && end->ok());
  EXPECT_EQ(error_from(std::get<wire::ClientError>(**end)).code, ErrorCode::kCancelled);
  Door door(bus().client);
  const auto sent = wire::read_client_request(door.request(client));
  EXPECT_EQ(sent.request_id, *second);
}

TEST_F(Posted, CancelledAtTheRouterItEndsWithTheRoutersAnswer) {
  Door door(bus().client);
  Client client(bus());
  const auto id = client.post(question);
  ASSERT_TRUE(id.ok());
  (void)door.request(client);
  client.cancel(*id);
  const auto cancel = wire::read_client_request(door.request(client));
  ASSERT_TRUE(cancel.request.ok());
  EXPECT_EQ(cancel.request->op, wire::ClientOp::kCancel);
  EXPECT_EQ(cancel.request_id, *id);
  door.answer(reply(*id, "half", {1}));
  const auto end = client.receive(soon());
  ASSERT_TRUE(end && end->ok());
  EXPECT_EQ(std::get<wire::ClientReply>(**end).text, "half");
}

TEST_F(Posted, TooLargeIsRefusedAtOnce) {
  Client client(bus());
  wire::ClientRequest large = question;
  large.prompt.assign(2 << 20, 'x');
  EXPECT_FALSE(client.post(large).ok());
}

}  // namespace
}  // namespace foretoken
