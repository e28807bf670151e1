// Collective: the ranks of one model, working in step. Every call is made by all ranks in the same
// order. Sums are taken in rank order, element by element, so that a row's bits depend neither on
// how many rows travel with it nor on who was late; that is said once, here, for every
// implementation. Blind to what the numbers mean. Host memory; one thread of each rank. A wait
// longer than the patience throws FatalError(kUnavailable): a stopped rank is invisible otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace foretoken {

// Best of a slice of the vocabulary. id < 0: nothing may be chosen there.
struct ScoredId {
  double score = 0;
  std::int32_t id = -1;
  std::int32_t unused = 0;  // no padding: the bytes travel as they are
};

class Collective {
 public:
  virtual ~Collective() = default;
  Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // all = the bytes of rank 0, of rank 1, ...; [size() * mine.size()], mine of equal size
  // everywhere.
  void gather(std::span<const std::byte> mine, std::span<std::byte> all);
  template <class T>
  std::vector<T> gather(std::span<const T> mine) {
    std::vector<T> all(mine.size() * static_cast<std::size_t>(size()));
    gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
    return all;
  }
  // sum[i] = (part of rank 0 + part of rank 1) + part of rank 2 ...: the same bits on every rank.
  void sum_rows(std::span<const float> part, std::span<float> sum);
  // Each row becomes the best of all ranks: the highest score, of equal ones the smaller id.
  void max_rows(std::span<ScoredId> rows);
  // Rank 0's bytes everywhere; the size comes along.
  void broadcast(std::vector<std::byte>& bytes);
  void barrier();

  // The longest that one wait may take, from now on. Ten minutes until it is set:
  // ranks load at different speeds. Zero: no limit, for a rank that waits to be told what to do.
  void set_patience(Duration patience) { patience_ = patience; }
  Duration patience() const { return patience_; }

 private:
  virtual void do_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  virtual void do_broadcast(std::vector<std::byte>& bytes) = 0;

  Duration patience_ = std::chrono::minutes(10);
  std::vector<float> parts_;
};

// A process alone.
std::unique_ptr<Collective> make_self_collective();

// Ranks as threads of one process, for tests: one each, to be used by a thread of its own. The last
// to go takes what they share.
std::vector<std::unique_ptr<Collective>> make_thread_collectives(int n_ranks);

// The ranks that mpirun or srun started. Once per process, on the thread that will use it. Throws
// FatalError if this build has no MPI or if their number is not `n_expected`.
std::unique_ptr<Collective> make_mpi_collective(int n_expected);

// The number of this process if it was started as one of several ranks, as its environment tells:
// known before MPI is asked.
std::optional<int> started_rank();

}  // namespace foretoken
