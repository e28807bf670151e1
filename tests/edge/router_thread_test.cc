// Requests of several threads at the same time, each of which is sent without delay.
#include "services/edge/router_thread.h"

#include <gtest/gtest.h>

#include <semaphore>
#include <stop_token>
#include <thread>
#include <vector>

#include "tests/support/temp_folder.h"

namespace foretoken::edge {
namespace {

using namespace std::chrono_literals;

// Answers everything with an error, at once.
void serve(ZmqTransport& door, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto delivery = door.receive(steady_now() + 10ms);
    if (!delivery || delivery->frames.empty()) continue;
    const auto request = wire::read_client_request(delivery->frames.back());
    ASSERT_TRUE(request.request.ok());
    const auto answer =
        wire::client_error(*request.request_id, {ErrorCode::kDraining, "stopping"}, 0);
    EXPECT_EQ(SendResult::kSent,
              door.send(delivery->peer, Frames{wire::write_client_answer(answer)}));
  }
}

// The thread would sleep for an hour: only the wake that comes with a request can end that. That
// one comes while the thread is at work is a matter of chance; of so many requests some do.
TEST(RouterThread, MissesNoRequestThatComesWhileItWorks) {
  constexpr int kClients = 3, kRequests = 700;
  test::TempFolder folder;
  BusSection bus;
  bus.client = "ipc://" + (folder.path() / "client").string();
  ZmqTransport door;
  door.bind(bus.client, Door::kClient);
  const std::jthread serving([&](const std::stop_token& stop) { serve(door, stop); });
  std::counting_semaphore<> first(0), second(0), third(0);
  std::counting_semaphore<>* const answered[kClients] = {&first, &second, &third};
  RouterThread router(
      bus,
      [&](const std::vector<wire::ClientAnswer>& answers) {
        for (const auto& answer : answers) {
          // The last digit of an id is its client's number.
          const int client = answer_id(answer).back() - '0';
          answered[client]->release();
        }
      },
      1h);
  std::vector<std::jthread> clients;
  for (int client = 0; client < kClients; ++client)
    clients.emplace_back([&, client] {
      for (int i = 1; i <= kRequests; ++i) {
        wire::ClientRequest request;
        request.request_id = RequestId{.high = static_cast<std::uint64_t>(i),
                                       .low = static_cast<std::uint64_t>(client)};
        request.prompt = "Once";
        router.post(std::move(request));
        ASSERT_TRUE(answered[client]->try_acquire_for(30s)) << "request " << i << " was missed";
      }
    });
}

}  // namespace
}  // namespace foretoken::edge
