#include <unordered_map>
#include <utility>

#include "services/cli/ask.h"
#include "services/cli/bench_door.h"

namespace foretoken::cli {
namespace {

class ZeromqDoor final : public BenchDoor {
 public:
  explicit ZeromqDoor(Client& client) : client_(client) {}

  std::string name() const override { return "zeromq"; }

  Result<void> send(std::size_t request, wire::ClientRequest asked) override {
    const auto id = client_.post(std::move(asked));
    if (!id.ok()) return id.error();
    numbers_[wire::hex_of(*id)] = request;
    return {};
  }

  std::optional<Result<BenchNews>> next(TimePoint deadline) override {
    for (;;) {
      auto answer = client_.receive(deadline);
      if (!answer) return std::nullopt;
      if (!answer->ok()) return Result<BenchNews>(answer->error());
      const auto found = numbers_.find(answer_id(**answer));
      if (found == numbers_.end()) continue;  // it was not waited for any more
      const std::size_t request = found->second;
      if (!std::holds_alternative<wire::ClientPiece>(**answer)) numbers_.erase(found);
      return Result<BenchNews>(BenchNews{request, std::move(**answer)});
    }
  }

  void forget(std::size_t request) override {
    for (auto it = numbers_.begin(); it != numbers_.end(); ++it) {
      if (it->second != request) continue;
      if (const auto id = wire::request_id_from_hex(it->first)) client_.forget(*id);
      numbers_.erase(it);
      return;
    }
  }

  std::vector<MetricSample> metrics() override {
    const auto text = metrics_of(client_);
    return text.ok() ? read_samples(*text) : std::vector<MetricSample>();
  }

  std::uint64_t n_asked_again() const override { return client_.n_asked_again(); }

 private:
  Client& client_;
  std::unordered_map<std::string, std::size_t> numbers_;  // by id
};

}  // namespace

std::unique_ptr<BenchDoor> zeromq_door(Client& client) {
  return std::make_unique<ZeromqDoor>(client);
}

}  // namespace foretoken::cli
