// Weights from a checkpoint's rows into the blocks of kernels/include/fragment.h, a slab of row
// blocks at a time on the host, then to the device. Done once, at load.
#include <algorithm>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "common/base/result.h"
#include "kernels/cuda/backend.h"
#include "kernels/include/fragment.h"
#include "kernels/shared/unpacked.h"

namespace foretoken::cuda {
namespace {

constexpr std::int64_t kSlabBytes = std::int64_t{64} << 20;

struct Origin {
  const LinearSource* source = nullptr;  // null for padding
  std::int64_t row = 0;
};

Origin origin_of(std::span<const LinearSource> sources, Stacking stacking, std::int64_t packed) {
  if (stacking == Stacking::kGateUp) {
    const LinearSource& source = sources[fragment::is_up(packed) ? 1 : 0];
    const std::int64_t row = fragment::pair_of(packed);
    return row < source.n_out ? Origin{&source, row} : Origin{};
  }
  for (const LinearSource& source : sources) {
    if (packed < source.n_out) return {&source, packed};
    packed -= source.n_out;
  }
  return {};
}

// Packed rows, padding between gate and up included.
std::int64_t packed_rows(const Linear& linear) {
  if (linear.stacking == Stacking::kRows) return linear.n_out;
  return fragment::blocks_of(linear.n_out / 2, 8) * 16;
}

struct Row {
  const std::byte* bytes = nullptr;
  float scale = 1;
};

// `space`: room for a row that no memory holds.
Row row_of(const Origin& origin, std::vector<std::byte>& space) {
  const LinearSource& source = *origin.source;
  const std::int64_t bytes = source.n_in * static_cast<std::int64_t>(size_bytes(source.dtype));
  if (source.rows != nullptr) {
    space.resize(static_cast<std::size_t>(bytes));
    const float scale = source.rows->read_one(origin.row, space.data());
    return {space.data(), scale};
  }
  return {static_cast<const std::byte*>(source.data) + origin.row * bytes,
          source.scales == nullptr ? 1.0f : source.scales[origin.row]};
}

// Of a matrix in memory. A reader writes numbers alone.
void refuse_nan(const Origin& origin) {
  const LinearSource& source = *origin.source;
  if (source.dtype != DType::kF8E4M3 || source.data == nullptr) return;
  const std::byte* row = static_cast<const std::byte*>(source.data) + origin.row * source.n_in;
  for (std::int64_t k = 0; k < source.n_in; ++k)
    if (e4m3_is_nan(static_cast<std::uint8_t>(row[k])))
      throw FatalError(ErrorCode::kUnsupportedModel,
                       "a float8_e4m3 weight is NaN (column " + std::to_string(k) + ")");
}

// One row into its place in `slab`, which begins at packed row `first`.
void pack_row(std::byte* slab,
              std::int64_t row_in_slab,
              const std::byte* from,
              std::int64_t n_in,
              std::int64_t n_k_blocks,
              int element) {
  // Within a step of 16 values of K the offsets repeat from step to step.
  for (std::int64_t k = 0; k < n_in; k += 2) {
    std::byte* to = slab + fragment::weight_offset(element, n_k_blocks, row_in_slab, k);
    const std::int64_t pair = std::min<std::int64_t>(2, n_in - k) * element;
    std::memcpy(to, from + k * element,
                static_cast<std::size_t>(pair));  // k and k + 1 lie together
  }
}

template <class Work>
void in_parallel(std::int64_t n, const Work& work) {
  const auto n_threads = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1,
                                                  std::max<std::int64_t>(1, n / 64));
  std::vector<std::jthread> threads;  // joined at the end
  std::int64_t t = 1;
  try {
    for (; t < n_threads; ++t)
      threads.emplace_back([&, t] { work(n * t / n_threads, n * (t + 1) / n_threads); });
  } catch (const std::system_error&) {  // no more can be started: this one does the rest
    work(n * t / n_threads, n);
  }
  work(0, n / n_threads);
}

}  // namespace

Linear CudaBackend::do_pack(std::span<const LinearSource> sources, Stacking stacking) {
  FORETOKEN_CHECK(!recording_, "packing is not recorded");
  Linear linear = unpacked(sources, stacking);
  const bool rows_only = linear.dtype == DType::kF32;  // kept row by row
  const int element = static_cast<int>(size_bytes(linear.dtype));
  const std::int64_t n_rows = packed_rows(linear);
  const std::int64_t n_blocks = fragment::blocks_of(n_rows, fragment::kBlockRows);
  const std::int64_t n_k_blocks = fragment::blocks_of(linear.n_in, fragment::kBlockK);
  const std::int64_t block_row_bytes = rows_only ? fragment::kBlockRows * linear.n_in * element
                                                 : n_k_blocks * fragment::block_bytes(element);
  linear.weights = allocate(static_cast<std::size_t>(n_blocks * block_row_bytes));
  const auto n_padded = static_cast<std::size_t>(n_blocks * fragment::kBlockRows);
  std::vector<float> scales(is_quantised(linear.dtype) ? n_padded : 0, 0.0f);
  const std::int64_t blocks_per_slab =
      std::clamp<std::int64_t>(kSlabBytes / block_row_bytes, 1, n_blocks);
  std::vector<std::byte> slab(static_cast<std::size_t>(blocks_per_slab * block_row_bytes));
  for (std::int64_t block = 0; block < n_blocks; block += blocks_per_slab) {
    const std::int64_t n_here = std::min(blocks_per_slab, n_blocks - block);
    std::fill(slab.begin(), slab.end(), std::byte{0});  // padding multiplies as zero in every dtype
    for (std::int64_t i = 0; i < n_here * fragment::kBlockRows; ++i) {
      const Origin origin = origin_of(sources, stacking, block * fragment::kBlockRows + i);
      if (origin.source != nullptr) refuse_nan(origin);
    }
    in_parallel(n_here * fragment::kBlockRows, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::byte> space;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t packed = block * fragment::kBlockRows + i;
        const Origin origin = origin_of(sources, stacking, packed);
        if (origin.source == nullptr) continue;
        const Row row = row_of(origin, space);
        if (!scales.empty()) scales[static_cast<std::size_t>(packed)] = row.scale;
        if (rows_only)
          std::memcpy(slab.data() + i * linear.n_in * element, row.bytes,
                      static_cast<std::size_t>(linear.n_in * element));
        else
          pack_row(slab.data(), i, row.bytes, linear.n_in, n_k_blocks, element);
      }
    });
    upload(linear.weights.as<std::byte>() + block * block_row_bytes, slab.data(),
           static_cast<std::size_t>(n_here * block_row_bytes));
    synchronize();  // the slab is filled again
  }
  const auto vector = [&](const std::vector<float>& host) {
    Buffer buffer = allocate(host.size() * sizeof(float));
    upload(buffer.as<float>(), host.data(), host.size() * sizeof(float));
    return buffer;
  };
  std::vector<float> bias(any_bias(sources) ? n_padded : 0, 0.0f);
  for (std::size_t i = 0; i < bias.size(); ++i) {
    const Origin origin = origin_of(sources, stacking, static_cast<std::int64_t>(i));
    if (origin.source != nullptr && origin.source->bias != nullptr)
      bias[i] = origin.source->bias[origin.row];
  }
  if (!scales.empty()) linear.scales = vector(scales);
  if (!bias.empty()) linear.bias = vector(bias);
  synchronize();
  return linear;
}

}  // namespace foretoken::cuda
