// The public half of every backend: contract first, then the device's own work.
#include "kernels/include/backend.h"

#include "common/base/check.h"
#include "kernels/shared/contract.h"

namespace foretoken {

Buffer::~Buffer() {
  if (owner_ != nullptr) owner_->do_free(address_, size_bytes_);
}

Buffer Backend::allocate(std::size_t bytes) {
  if (bytes == 0) return {};
  return Buffer(*this, do_allocate(bytes), bytes);
}

void Backend::upload(void* to_device, const void* from_host, std::size_t bytes) {
  if (bytes == 0) return;
  FORETOKEN_CHECK(to_device != nullptr && from_host != nullptr);
  do_upload(to_device, from_host, bytes);
}

void Backend::download(void* to_host, const void* from_device, std::size_t bytes) {
  if (bytes == 0) return;
  FORETOKEN_CHECK(to_host != nullptr && from_device != nullptr);
  do_download(to_host, from_device, bytes);
}

void Backend::copy(void* to_device, const void* from_device, std::size_t bytes) {
  if (bytes == 0) return;
  FORETOKEN_CHECK(to_device != nullptr && from_device != nullptr);
  do_copy(to_device, from_device, bytes);
}

void Backend::synchronize() { do_synchronize(); }

Linear Backend::pack(std::span<const LinearSource> sources, Stacking stacking) {
  contract::check(sources, stacking);
  return do_pack(sources, stacking);
}

std::optional<Linear> Backend::adopt(std::span<const LinearSource> sources,
                                     Stacking stacking,
                                     const PackedBytes& packed,
                                     const std::shared_ptr<const void>& keeper) {
  contract::check_sizes(sources, stacking);
  return do_adopt(sources, stacking, packed, keeper);
}

void Backend::embed(const EmbedArgs& args) {
  contract::check(args);
  if (args.n_rows > 0) do_embed(args);
}

void Backend::qkv_rope_append(const QkvRopeAppendArgs& args) {
  contract::check(args);
  if (args.n_rows > 0) do_qkv_rope_append(args);
}

void Backend::attn_paged(const AttnPagedArgs& args) {
  contract::check(args);
  if (args.n_rows > 0) do_attn_paged(args);
}

void Backend::matmul_residual(const MatmulResidualArgs& args) {
  contract::check(args);
  if (args.n_rows > 0) do_matmul_residual(args);
}

void Backend::gate_up_swiglu(const GateUpSwigluArgs& args) {
  contract::check(args);
  if (args.n_rows > 0) do_gate_up_swiglu(args);
}

void Backend::lm_head(const LmHeadArgs& args) {
  contract::check(args);
  if (args.n_rows > 0)
    do_lm_head(args);
  else
    do_end_pass();
}

void Backend::spread(const SpreadArgs& args) {
  contract::check(args);
  if (args.n_rows > 0) do_spread(args);
}

void Backend::choose(const ChooseArgs& args) {
  contract::check(args);
  if (args.n_rows > 0) do_choose(args);
}

void Backend::accept(const AcceptArgs& args) {
  contract::check(args);
  if (args.n_rows > 0) do_accept(args);
}

void Backend::advance(const AdvanceArgs& args) {
  contract::check(args);
  if (args.n_sequences > 0) do_advance(args);
}

std::unique_ptr<Recording> Backend::record(const std::function<void()>& calls) {
  return do_record(calls);
}

void Backend::replay(Recording& recording) { do_replay(recording); }

std::unique_ptr<RankSums> Backend::join_ranks(const RankLinks& links) {
  FORETOKEN_CHECK(links.n_ranks > 1 && links.rank >= 0 && links.rank < links.n_ranks);
  return do_join_ranks(links);
}

std::optional<RankTier> rank_tier_from_name(std::string_view name) {
  if (name == "auto") return RankTier::kAuto;
  if (name == "host") return RankTier::kHost;
  if (name == "one_shot") return RankTier::kOneShot;
  if (name == "nccl") return RankTier::kNccl;
  return std::nullopt;
}

std::optional<Record> record_from_name(std::string_view name) {
  if (name == "auto") return Record::kAuto;
  if (name == "on") return Record::kOn;
  if (name == "off") return Record::kOff;
  return std::nullopt;
}

}  // namespace foretoken
