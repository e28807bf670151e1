// The one-shot sum as a function of a block, so that the emulator's tests can run several ranks,
// one a block, in a single launch; sum_ranks.cu runs it for one rank.
#pragma once

#include "kernels/cuda/peers.cuh"
#include "kernels/cuda/sum_ranks.h"

namespace foretoken::cuda {

constexpr int kSumThreads = 256;

// Block `block` of n_blocks. All its packets leave before it waits for any, so whatever the order
// in which ranks come, no rank waits for one that waits for it.
__device__ inline void sum_ranks_block(const SumRanksArgs& p, int block, int n_blocks) {
  const std::uint32_t turn = *p.turn, tag = turn + 1;
  const std::int64_t n_packets = (p.n + 2) / 3;
  const std::int64_t first = std::int64_t{block} * kSumThreads + threadIdx.x;
  const std::int64_t step = std::int64_t{n_blocks} * kSumThreads;
  const std::int64_t half = static_cast<std::int64_t>(turn & 1u) * p.n_ranks * kOneShotPackets;
  const auto own = [&](std::int64_t packet) {
    const std::int64_t at = 3 * packet;
    return Packet{
        {p.part[at], at + 1 < p.n ? p.part[at + 1] : 0.0f, at + 2 < p.n ? p.part[at + 2] : 0.0f},
        tag};
  };
  for (std::int64_t packet = first; packet < n_packets; packet += step) {
    const Packet x = own(packet);
    for (int peer = 0; peer < p.n_ranks; ++peer)
      if (peer != p.rank)
        store_packet(p.inboxes[peer] + half + std::int64_t{p.rank} * kOneShotPackets + packet, x);
  }
  const Packet* inbox = p.inboxes[p.rank] + half;
  for (std::int64_t packet = first; packet < n_packets; packet += step) {
    Packet sum{};
    for (int source = 0; source < p.n_ranks; ++source) {
      Packet x;
      if (source == p.rank) {
        x = own(packet);
      } else {
        const Packet* at = inbox + std::int64_t{source} * kOneShotPackets + packet;
        for (x = load_whole(at); x.tag != tag; x = load_whole(at)) let_others_run();
      }
      if (source == 0)
        sum = x;
      else
        sum = {{sum.value[0] + x.value[0], sum.value[1] + x.value[1], sum.value[2] + x.value[2]},
               0};
    }
    float* to = p.residual + 3 * packet;
    to[0] += sum.value[0];
    if (3 * packet + 1 < p.n) to[1] += sum.value[1];
    if (3 * packet + 2 < p.n) to[2] += sum.value[2];
  }
  // The last block of the launch turns the page; all have read it by then.
  sync_block();
  if (threadIdx.x != 0) return;
  fence_device();
  if (add_global_count(p.n_done, 1) + 1 == static_cast<std::uint32_t>(n_blocks)) {
    *p.n_done = 0;
    *p.turn = tag;
  }
}

}  // namespace foretoken::cuda
