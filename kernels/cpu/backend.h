// The CPU as a device: memory is host memory, calls run at once, a recording is a list of calls.
// Ops are in the files of their names; this class holds what they share: the team of threads, the
// instruction set's table, working space. One thread uses a backend; inside an op the team's
// members share the work in fixed parts.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/choose.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/team_size.h"
#include "kernels/include/backend.h"

namespace foretoken::cpu {

std::unique_ptr<Backend> make_backend(const BackendOptions& options);

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Isa& isa, int n_threads, bool pin, int sharers, Record record);

  std::string numerics() const override;
  bool holds(DType weights) const override { return weights != DType::kF8E4M3; }
  std::string packed_layout() const override;
  std::string description() const override;
  std::size_t free_bytes() const override;
  // A list of calls takes as long as the calls.
  bool gains_by_recording() const override { return record_ == Record::kOn; }

 private:
  void* do_allocate(std::size_t bytes) override;
  void do_free(void* address, std::size_t bytes) noexcept override;
  void do_upload(void* to_device, const void* from_host, std::size_t bytes) override;
  void do_download(void* to_host, const void* from_device, std::size_t bytes) override;
  void do_copy(void* to_device, const void* from_device, std::size_t bytes) override;
  void do_synchronize() override {}
  Linear do_pack(std::span<const LinearSource> sources, Stacking stacking) override;
  std::optional<Linear> do_adopt(std::span<const LinearSource> sources,
                                 Stacking stacking,
                                 const PackedBytes& packed,
                                 const std::shared_ptr<const void>& keeper) override;
  void do_embed(const EmbedArgs& args) override;
  void do_qkv_rope_append(const QkvRopeAppendArgs& args) override;
  void do_attn_paged(const AttnPagedArgs& args) override;
  void do_matmul_residual(const MatmulResidualArgs& args) override;
  void do_gate_up_swiglu(const GateUpSwigluArgs& args) override;
  void do_lm_head(const LmHeadArgs& args) override;
  void do_end_pass() override { end_pass(); }
  void do_spread(const SpreadArgs& args) override;
  void do_choose(const ChooseArgs& args) override;
  void do_accept(const AcceptArgs& args) override;
  void do_advance(const AdvanceArgs& args) override;
  std::unique_ptr<Recording> do_record(const std::function<void()>& calls) override;
  void do_replay(Recording& recording) override;

  // Each in the file of its name.
  void embed_now(const EmbedArgs& args);
  void qkv_rope_append_now(const QkvRopeAppendArgs& args);
  void attn_paged_now(const AttnPagedArgs& args);
  void matmul_residual_now(const MatmulResidualArgs& args);
  void gate_up_swiglu_now(const GateUpSwigluArgs& args);
  void lm_head_now(const LmHeadArgs& args);
  void spread_now(const SpreadArgs& args);
  void choose_now(const ChooseArgs& args);
  void accept_now(const AcceptArgs& args);
  void advance_now(const AdvanceArgs& args);

  // Runs `call` now, or keeps it if record() is on.
  template <class Call>
  void submit(Call&& call) {
    if (recorded_ != nullptr)
      recorded_->emplace_back(std::forward<Call>(call));
    else
      call();
  }

  // A pass is what runs from embed() to lm_head(): how long it takes decides how many members take
  // part.
  void begin_pass(std::int32_t n_rows);
  void end_pass();
  TeamSize& team_size(std::int32_t n_rows);

  const Isa& isa_;
  Team team_;
  std::array<TeamSize, 2> team_sizes_;  // of passes of few rows, and of many
  std::int32_t pass_rows_ = 0;          // of the pass that runs; 0: none does
  std::chrono::steady_clock::time_point pass_begin_{};
  const std::size_t sharers_;  // of the host's memory
  const Record record_;
  MatmulSpace matmul_space_;
  Scratch op_scratch_;
  std::vector<ChooseSpace> choose_spaces_;  // one per member
  std::vector<std::function<void()>>* recorded_ = nullptr;
};

}  // namespace foretoken::cpu
