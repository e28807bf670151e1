// The emulated device has one process and is done with what is queued before the call returns.
#include "kernels/cuda/board_place.h"
#include "kernels/emu/memory.h"

namespace foretoken::cuda {
namespace {

class EmulatedPlace final : public BoardPlace {
 public:
  explicit EmulatedPlace(std::size_t n_bytes) : memory_(emu::allocate(n_bytes)) {}
  ~EmulatedPlace() override { emu::release(memory_); }
  void* memory() const override { return memory_; }
  void mark(Runtime&) override {}
  void wait(Runtime&) override {}

 private:
  void* memory_;
};

}  // namespace

std::shared_ptr<BoardPlace> make_place(Runtime&, std::size_t n_bytes, PlaceHandles&, std::string&) {
  return std::make_shared<EmulatedPlace>(n_bytes);
}

std::shared_ptr<BoardPlace> open_place(Runtime&, const PlaceHandles&, std::string& why) {
  why = "the emulated device has no other processes";
  return nullptr;
}

bool is_idle(Runtime&) { return true; }

std::string device_of(Runtime&) { return "00000000000000000000000000000000"; }

}  // namespace foretoken::cuda
