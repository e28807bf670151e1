// The smallest service: echoes what clients send. FIXTURE_MODE makes it fail in the ways a service
// can.
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "common/base/log.h"
#include "common/base/result.h"
#include "common/config/resolve.h"
#include "common/runtime/service_main.h"

namespace {

using foretoken::Delivery;
using foretoken::TimePoint;

class EchoService final : public foretoken::Service {
 public:
  EchoService(const foretoken::Config& config, std::string mode)
      : config_(config), mode_(std::move(mode)) {}

  void start(foretoken::Bus& bus) override {
    bus_ = &bus;
    socket_ = bus.bind(foretoken::client_endpoint(config_.bus), foretoken::Door::kClient);
  }
  void on_message(Delivery delivery) override {
    ++echoed_;
    if (delivery.frames[0] == "wedge") {
      foretoken::log_info("a message that takes an hour");
      std::this_thread::sleep_for(std::chrono::hours(1));
    }
    bus_->send(delivery.peer, std::move(delivery.frames), {});
  }
  TimePoint on_turn(TimePoint now) override { return now + std::chrono::hours(1); }
  void drain(TimePoint) override { draining_ = true; }
  bool drained() const override { return draining_ && mode_ != "stubborn"; }
  std::string status() const override { return std::to_string(echoed_) + " echoed"; }

 private:
  const foretoken::Config& config_;
  std::string mode_;
  foretoken::Bus* bus_ = nullptr;
  foretoken::SocketId socket_ = 0;
  int echoed_ = 0;
  bool draining_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  return foretoken::service_main(
      {"fixture", argc, argv, "Echoes, for tests."}, [](const auto& config, auto& runtime) {
        const char* value = std::getenv("FIXTURE_MODE");
        const std::string mode = value == nullptr ? "echo" : value;
        if (mode == "bad-config")
          throw foretoken::FatalError(foretoken::ErrorCode::kConfig,
                                      "model.target has no config.json");
        if (mode == "gone")
          throw foretoken::FatalError(foretoken::ErrorCode::kIo, "the device is gone");
        if (mode == "bug") throw std::runtime_error("this should not happen");
        if (mode == "long-stage") {
          runtime.progress("loading for an hour");
          std::this_thread::sleep_for(std::chrono::hours(1));
        }
        for (int i = 0; mode == "slow-start" && i < 1000; ++i) {
          runtime.progress("loading layer " + std::to_string(i));
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        EchoService service(config, mode);
        return runtime.serve(service);
      });
}
