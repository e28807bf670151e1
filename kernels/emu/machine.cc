#include "kernels/emu/machine.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "kernels/emu/memory.h"

#if defined(__x86_64__)
// Saves what a function call must keep, changes stacks, takes it back.
asm(R"(
.text
.globl foretoken_emu_switch
.type foretoken_emu_switch, @function
foretoken_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size foretoken_emu_switch, .-foretoken_emu_switch
)");
extern "C" void foretoken_emu_switch(void** save, void* to);
#else
#error "the emulator's fibers are written for x86-64"
#endif

namespace foretoken::emu {

Place here;

namespace {
const char* running = "no kernel";
}  // namespace

void die(const std::string& what) {
  std::fprintf(stderr, "emulated device: %s: %s (block %u,%u,%u thread %u)\n", running,
               what.c_str(), here.block.x, here.block.y, here.block.z, here.thread.x);
  std::abort();
}

namespace {

constexpr std::size_t kStackBytes = 96 << 10;

struct Meeting {  // of a fixed number of fibers, again and again
  int expected = 0;
  int count = 0;
  std::uint64_t generation = 0;
};

struct Fiber {
  // What it waits for, so that a turn that would change nothing need not switch stacks: a meeting's
  // next generation, a barrier's other phase, or kernels in front.
  const std::uint64_t* generation = nullptr;
  std::uint64_t seen = 0;
  const std::uint64_t* barrier = nullptr;
  int parity = 0;
  bool waits_for_kernels = false;
  void* stack_pointer = nullptr;
  std::unique_ptr<std::byte[]> stack;
  Place place;
  bool alive = false;
};

struct Warp {
  Meeting meeting;
  std::uint64_t shown[2][32] = {};  // by turns: a thread may still read what was shown last
  std::uint32_t a[32][4] = {}, b[32][2] = {};
  double product[16][8] = {};
};

struct Block {
  Meeting meeting;
  std::vector<Warp> warps;
  std::vector<std::byte> memory;
  std::byte* shared = nullptr;
  std::size_t shared_bytes = 0;
  int n_alive = 0;
};

std::vector<Fiber> fibers;
std::vector<Block> blocks;
Meeting cluster_meeting;
const std::function<void()>* body = nullptr;
void* main_stack = nullptr;
std::size_t current = 0;
std::uint64_t progress = 0;  // raised by whatever may let a thread go on
std::int64_t launch_count = 0, prefetched = 0;
std::set<const void*> places_prefetched;
std::uint64_t schedule_seed = 1;
std::mt19937_64 rng;
Watch* early = nullptr;    // while kernels in front are under way, for all we know
std::int64_t n_waits = 0;  // for them, in this launch
std::uint64_t frozen = 0;  // warps that have no turn until all others wait

void leave() { foretoken_emu_switch(&fibers[current].stack_pointer, main_stack); }

void entry() {
  (*body)();
  fibers[current].alive = false;
  // The memory of a block that has left belongs to another.
  Block& block = blocks[static_cast<std::size_t>(here.rank)];
  if (--block.n_alive == 0) std::memset(block.shared, 0xff, block.shared_bytes);
  ++progress;
  leave();
  std::abort();
}

void start(Fiber& fiber) {
  if (!fiber.stack) fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  std::byte* top = fiber.stack.get() + kStackBytes;
  top -= reinterpret_cast<std::uintptr_t>(top) % 64;
  auto* slot = reinterpret_cast<void**>(top);
  *--slot = nullptr;  // what entry() would return to; also what aligns its frame
  *--slot = reinterpret_cast<void*>(&entry);
  for (int i = 0; i < 6; ++i) *--slot = nullptr;
  fiber.stack_pointer = slot;
  fiber.generation = fiber.barrier = nullptr;
  fiber.waits_for_kernels = false;
  fiber.alive = true;
}

Block& my_block() { return blocks[static_cast<std::size_t>(here.rank)]; }
Warp& my_warp() { return my_block().warps[here.thread.x / 32]; }

struct BarrierBits {  // in the 8 bytes of a shared-memory barrier
  std::int16_t expected, pending;
  std::int32_t bytes_and_phase;  // bytes still to come, times two, plus phase
};
BarrierBits read(const std::uint64_t* barrier) { return bits_as<BarrierBits>(*barrier); }
int phase_of(const std::uint64_t* barrier) { return read(barrier).bytes_and_phase & 1; }

void meet(Meeting& meeting) {
  if (++meeting.count == meeting.expected) {
    meeting.count = 0;
    ++meeting.generation;
    ++progress;
    // The moment after a barrier is when one that is missing further on shows: some warps run
    // ahead.
    if (schedule_seed > 1 && meeting.expected > 32)
      frozen = rng() & rng();  // NOLINT(misc-redundant-expression): two draws
    return;
  }
  const std::uint64_t generation = meeting.generation;
  Fiber& fiber = fibers[current];
  fiber.generation = &meeting.generation;
  fiber.seen = generation;
  while (meeting.generation == generation) pass_turn();
  fiber.generation = nullptr;
}

bool waits(const Fiber& fiber) {
  if (fiber.generation != nullptr) return *fiber.generation == fiber.seen;
  if (fiber.waits_for_kernels) return early != nullptr;
  return fiber.barrier != nullptr && phase_of(fiber.barrier) == fiber.parity;
}

// The kernels in front have ended.
void let_through() {
  if (early == nullptr) return;
  early->open();
  early = nullptr;
}

// Round after round every fiber has a turn, in an order from the seed. From seed 2 on, some warps
// stand still for a while after each barrier, as on a device where nothing makes them keep pace.
void run_fibers() {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < fibers.size(); ++i)
    if (fibers[i].alive) order.push_back(i);
  int idle_rounds = 0;
  frozen = 0;
  while (!order.empty()) {
    const std::uint64_t before = progress;
    const std::uint64_t dice = schedule_seed == 0 ? 0 : rng();
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(dice / 2 % order.size()),
                order.end());
    if (dice % 2 != 0) std::reverse(order.begin(), order.end());
    for (const std::size_t i : order) {
      if ((frozen >> i / 32 % 64 & 1) != 0 || waits(fibers[i])) continue;
      current = i;
      here = fibers[i].place;
      foretoken_emu_switch(&main_stack, fibers[i].stack_pointer);
    }
    std::erase_if(order, [](std::size_t i) { return !fibers[i].alive; });
    idle_rounds = progress == before ? idle_rounds + 1 : 0;
    if (idle_rounds > 0) frozen = 0;
    if (idle_rounds > 1 && early != nullptr) {
      let_through();
      idle_rounds = 0;
    }
    if (idle_rounds > 3) die("threads wait for one another for ever");
  }
}

// The PTX manual's picture of m16n8k16 with 16-bit operands, written out: row (or column) and k of
// each value a lane holds. Deliberately not computed with kernels/include/fragment.h.
struct Cell {
  int line, k;
};
Cell a_cell(int lane, int i) {
  const int group = lane >> 2, in_group = lane & 3;
  static constexpr int kRowPlus[8] = {0, 0, 8, 8, 0, 0, 8, 8};
  static constexpr int kKPlus[8] = {0, 1, 0, 1, 8, 9, 8, 9};
  return {group + kRowPlus[i], in_group * 2 + kKPlus[i]};
}
Cell b_cell(int lane, int i) {
  static constexpr int kKPlus[4] = {0, 1, 8, 9};
  return {lane >> 2, (lane & 3) * 2 + kKPlus[i]};
}
Cell c_cell(int lane, int i) {  // line: row; k: column
  static constexpr int kRowPlus[4] = {0, 0, 8, 8}, kColumnPlus[4] = {0, 1, 0, 1};
  return {(lane >> 2) + kRowPlus[i], (lane & 3) * 2 + kColumnPlus[i]};
}

float half_of(std::uint32_t word, int i, bool is_bf16) {
  const auto h = static_cast<std::uint16_t>(word >> 16 * i);
  return is_bf16 ? bf16_to_f32(h) : f16_to_f32(h);
}

void settle(std::uint64_t* barrier, BarrierBits bits) {
  if (bits.pending == 0 && bits.bytes_and_phase >> 1 == 0) {
    bits.pending = bits.expected;
    bits.bytes_and_phase ^= 1;
    ++progress;
  }
  *barrier = bits_as<std::uint64_t>(bits);
}

}  // namespace

void set_schedule(std::uint64_t seed) { schedule_seed = seed; }

void pass_turn() { leave(); }
void note_progress() { ++progress; }
void wait_block() { meet(my_block().meeting); }
void wait_warp() { meet(my_warp().meeting); }
void wait_cluster() { meet(cluster_meeting); }

void wait_for_earlier_kernels() {
  ++n_waits;
  Fiber& fiber = fibers[current];
  fiber.waits_for_kernels = true;
  while (early != nullptr) pass_turn();
  fiber.waits_for_kernels = false;
}

std::uint64_t exchange(std::uint64_t value, int from) {
  Warp& warp = my_warp();
  std::uint64_t(&shown)[32] = warp.shown[warp.meeting.generation % 2];
  shown[here.thread.x % 32] = value;
  meet(warp.meeting);
  return shown[from];
}

// The last lane to arrive gathers both operands from who holds them and multiplies for all.
void multiply_warp(Warp& warp, bool is_bf16) {
  double left[16][16], right[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    for (int v = 0; v < 8; ++v) {
      const Cell at = a_cell(lane, v);
      left[at.line][at.k] = static_cast<double>(half_of(warp.a[lane][v / 2], v % 2, is_bf16));
    }
    for (int v = 0; v < 4; ++v) {
      const Cell at = b_cell(lane, v);
      right[at.k][at.line] = static_cast<double>(half_of(warp.b[lane][v / 2], v % 2, is_bf16));
    }
  }
  for (int row = 0; row < 16; ++row) {
    double sums[8] = {};
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) sums[column] += left[row][k] * right[k][column];
    std::copy(sums, sums + 8, warp.product[row]);
  }
}

void product(
    float (&c)[4], const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1, bool is_bf16) {
  Warp& warp = my_warp();
  const int lane = static_cast<int>(here.thread.x) % 32;
  std::copy(a, a + 4, warp.a[lane]);
  warp.b[lane][0] = b0;
  warp.b[lane][1] = b1;
  if (warp.meeting.count + 1 == warp.meeting.expected) multiply_warp(warp, is_bf16);
  meet(warp.meeting);
  for (int i = 0; i < 4; ++i) {
    const Cell at = c_cell(lane, i);
    c[i] = static_cast<float>(static_cast<double>(c[i]) + warp.product[at.line][at.k]);
  }  // no warp can multiply again before all have read
}

std::byte* shared_of_rank(int rank) { return blocks[static_cast<std::size_t>(rank)].shared; }

void barrier_init(std::uint64_t* barrier, int n_arrivals) {
  *barrier = bits_as<std::uint64_t>(
      BarrierBits{static_cast<std::int16_t>(n_arrivals), static_cast<std::int16_t>(n_arrivals), 0});
}
void barrier_arrive(std::uint64_t* barrier) {
  BarrierBits bits = read(barrier);
  if (bits.pending <= 0) die("an arrival too many at a barrier");
  --bits.pending;
  settle(barrier, bits);
}
void barrier_expect(std::uint64_t* barrier, int bytes) {
  BarrierBits bits = read(barrier);
  bits.bytes_and_phase += 2 * bytes;
  if (bits.pending <= 0) die("an arrival too many at a barrier");
  --bits.pending;
  settle(barrier, bits);
}
void barrier_complete(std::uint64_t* barrier, int bytes) {
  BarrierBits bits = read(barrier);
  bits.bytes_and_phase -= 2 * bytes;
  settle(barrier, bits);
}
void barrier_wait(std::uint64_t* barrier, int parity) {
  Fiber& fiber = fibers[current];
  fiber.barrier = barrier;
  fiber.parity = parity;
  while (phase_of(barrier) == parity) pass_turn();
  fiber.barrier = nullptr;
}

std::int64_t n_launches() { return launch_count; }
std::int64_t n_prefetched() { return prefetched; }
void count_prefetched(const void* from, int bytes) {
  if (places_prefetched.insert(from).second) prefetched += bytes;
}

void run(const Grid& grid, const std::function<void()>& kernel) {
  static std::mutex one_device;  // ranks of a test are threads
  const std::lock_guard turn(one_device);
  ++launch_count;
  running = grid.name;
  n_waits = 0;
  if (grid.n_threads % 32 != 0 || grid.n_threads > 1024) die("a block of odd size");
  if (grid.shared_bytes > 227 << 10) die("more shared memory than a block can have");
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) die("an empty grid");
  if (grid.blocks.y > 65535 || grid.blocks.z > 65535) die("a grid beyond 65535 in y or z");
  if (grid.blocks.z % static_cast<unsigned>(grid.cluster) != 0)
    die("clusters do not fill the grid");
  rng.seed(schedule_seed);
  body = &kernel;
  const auto n_threads = static_cast<std::size_t>(grid.n_threads);
  const auto cluster = static_cast<std::size_t>(grid.cluster);
  if (fibers.size() < n_threads * cluster) fibers.resize(n_threads * cluster);
  if (blocks.size() < cluster) blocks.resize(cluster);
  std::vector<Dim3> places;
  for (unsigned z = 0; z < grid.blocks.z; z += static_cast<unsigned>(cluster))
    for (unsigned y = 0; y < grid.blocks.y; ++y)
      for (unsigned x = 0; x < grid.blocks.x; ++x) places.push_back({x, y, z});
  if (schedule_seed > 1) std::shuffle(places.begin(), places.end(), rng);
  std::optional<Watch> watch;
  if (grid.is_watched) watch.emplace();
  for (const auto& [x, y, z] : places) {
    cluster_meeting = {static_cast<int>(n_threads * cluster), 0, 0};
    for (std::size_t rank = 0; rank < cluster; ++rank) {
      Block& block = blocks[rank];
      block.meeting = {grid.n_threads, 0, 0};
      block.n_alive = grid.n_threads;
      block.shared_bytes = grid.shared_bytes;
      block.warps.resize(n_threads / 32);
      for (Warp& warp : block.warps) warp.meeting = {32, 0, 0};
      block.memory.assign(grid.shared_bytes + 128,
                          std::byte{0xff});  // NaN to a thread that reads early
      const auto at = reinterpret_cast<std::uintptr_t>(block.memory.data());
      block.shared = block.memory.data() + (128 - at % 128) % 128;
      for (std::size_t t = 0; t < n_threads; ++t) {
        Fiber& fiber = fibers[rank * n_threads + t];
        fiber.place = {{static_cast<unsigned>(t), 0, 0},
                       {x, y, z + static_cast<unsigned>(rank)},
                       grid.blocks,
                       static_cast<int>(rank),
                       block.shared};
        start(fiber);
      }
    }
    if (watch && grid.overlaps) {
      watch->close();
      early = &*watch;
    }
    run_fibers();
    let_through();
  }
  if (grid.overlaps && n_waits == 0)
    die("overlaps others, but no thread waits for earlier kernels");
}

}  // namespace foretoken::emu
