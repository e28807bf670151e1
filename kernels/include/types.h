// The vocabulary of the kernels: element types, device memory, weights, the paged KV cache, and one
// argument struct per op lives in ops.h. Knows tensors, not models. Every pointer in this folder is
// a *device address*: on the CPU it happens to be readable, elsewhere it is not, so nothing outside
// a backend reads or writes through one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace foretoken {

enum class DType : std::uint8_t { kF32, kBf16, kF16, kI8, kF8E4M3, kI4 };

// Of one element; of kI4, which has half a byte, 0: see row_bytes().
constexpr std::size_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kI8:
    case DType::kF8E4M3:
      return 1;
    case DType::kI4:
      return 0;
  }
  return 0;
}

constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kBf16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    case DType::kI8:
      return "int8";
    case DType::kF8E4M3:
      return "float8_e4m3";
    case DType::kI4:
      return "int4";
  }
  return "?";
}

// Eight bits an element or four, with scales beside them.
constexpr bool is_quantised(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kF8E4M3 || dtype == DType::kI4;
}

// What the codes of kI4 stand for, before scales: kOffset: the code less 8. kZeroPoints: the code
// less a zero point that each group has beside its scale. kE2m1: twice the value of a float of four
// bits (kE2m1Table); twice, so that products take integers. kNonUniform: a value of
// kNonUniformTable; no folder has it, it is what float weights are quantised to while loading.
enum class Int4Kind : std::uint8_t { kOffset, kZeroPoints, kE2m1, kNonUniform };
inline constexpr int kInt4Kinds = 4;

// By code: a sign, two bits of exponent, one of mantissa, as the OCP Microscaling formats have it.
using Int4Table = std::array<std::int8_t, 16>;
inline constexpr Int4Table kE2m1Table{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Close together where a group has many weights, near zero. Ascending; code 8 is zero. Of integers
// that are at most 32 apart, so that eight products fit a sum of 16 bits, those with the least
// error that the search of docs/adr/0037-non-uniform-values-of-four-bits.md found.
inline constexpr Int4Table kNonUniformTable{-17, -13, -10, -8, -6, -4, -2, -1,
                                            0,   1,   3,   5,  7,  9,  12, 15};

// What codes of a kind are looked up in; null where they are counted themselves.
constexpr const Int4Table* int4_table(Int4Kind kind) {
  return kind == Int4Kind::kE2m1         ? &kE2m1Table
         : kind == Int4Kind::kNonUniform ? &kNonUniformTable
                                         : nullptr;
}

// A row of kI4: codes 0 to 15, behind them a float16 for each group of 32, 64 or 128 weights, and
// with kZeroPoints behind those a byte for each group, its zero point, 0 to 15. A weight is what
// its code stands for * the group's * the row's scale. Eight codes are four bytes: byte j has code
// j in its low half and code j + 4 in its high half, as the CPU's tiles read them. The last group
// is filled up with codes of 8.
inline constexpr std::int64_t kInt4Groups[] = {32, 64, 128};
constexpr bool is_int4_group(std::int64_t group) {
  return group == 32 || group == 64 || group == 128;
}
constexpr std::int64_t int4_groups_of(std::int64_t n_in, std::int64_t group) {
  return (n_in + group - 1) / group;
}
constexpr std::int64_t int4_code_bytes(std::int64_t n_in, std::int64_t group) {
  return int4_groups_of(n_in, group) * group / 2;
}

// Of a row in host memory. group and kind: of kI4.
constexpr std::int64_t row_bytes(DType dtype,
                                 std::int64_t n_in,
                                 std::int64_t group,
                                 Int4Kind kind = Int4Kind::kOffset) {
  if (dtype == DType::kI4) {
    const std::int64_t beside = kind == Int4Kind::kZeroPoints ? 3 : 2;
    return int4_code_bytes(n_in, group) + int4_groups_of(n_in, group) * beside;
  }
  return n_in * static_cast<std::int64_t>(size_bytes(dtype));
}

// As the numerics fingerprint has a type of weights: "int8", "int4/32", with zero points
// "int4z/32", floats of four bits "e2m1/32", non-uniform values "int4n/32".
std::string weight_type_name(DType dtype, std::int64_t group, Int4Kind kind);

// The longest row of a kI8 matrix that backends take.
inline constexpr std::int64_t kMaxInInt8 = 65536;

class Backend;

// Device memory, owned. Must not outlive its backend. Aligned to at least 64 bytes.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Backend& owner, void* address, std::size_t size)
      : owner_(&owner), address_(address), size_bytes_(size) {}
  // Memory of a keeper, which the buffer keeps alive; for reading only.
  Buffer(std::span<const std::byte> bytes, std::shared_ptr<const void> keeper)
      : keeper_(std::move(keeper)),
        address_(const_cast<std::byte*>(bytes.data())),
        size_bytes_(bytes.size()) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  // The device address, typed for an argument struct.
  template <class T>
  T* as() const {
    return static_cast<T*>(address_);
  }
  std::size_t size_bytes() const { return size_bytes_; }
  explicit operator bool() const { return address_ != nullptr; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(keeper_, other.keeper_);
    std::swap(address_, other.address_);
    std::swap(size_bytes_, other.size_bytes_);
  }
  Backend* owner_ = nullptr;  // null: a keeper's
  std::shared_ptr<const void> keeper_;
  void* address_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// Rows of a weight matrix that are made while it is packed. Several threads ask at once.
class RowReader {
 public:
  virtual ~RowReader() = default;
  // Writes `n` rows from `first` on, one behind another, of row_bytes() each, and their scales: of
  // types without, 1. Rows that lie across each other's words are read fastest together.
  virtual void read(std::int64_t first, std::int64_t n, std::byte* to, float* scales) const = 0;
  // One row; returns its scale.
  float read_one(std::int64_t row, std::byte* to) const {
    float scale = 1;
    read(row, 1, to, &scale);
    return scale;
  }
};

// A weight matrix in *host* memory as a checkpoint holds it, row-major: y = x Wᵀ + bias.
struct LinearSource {
  DType dtype = DType::kF32;
  const void* data = nullptr;  // [n_out, n_in]
  std::int64_t n_out = 0;
  std::int64_t n_in = 0;
  const float* scales = nullptr;    // [n_out], quantised types only: w = data * scale
  const float* bias = nullptr;      // [n_out] or null
  const RowReader* rows = nullptr;  // instead of data and scales
  std::int64_t group = 0;           // of kI4
  Int4Kind kind = Int4Kind::kOffset;
};

// How several matrices that share their input become one.
enum class Stacking : std::uint8_t {
  kRows,    // one below the other: q, k, v
  kGateUp,  // exactly two of equal shape, for gate_up_swiglu; the backend may interleave them
};

// A weight matrix in its backend's layout: packed once at load, immutable, opaque to callers.
struct Linear {
  DType dtype = DType::kF32;
  Stacking stacking = Stacking::kRows;
  std::int64_t n_out = 0;  // of all stacked matrices together
  std::int64_t n_in = 0;
  std::int64_t group = 0;  // weights that share a scale, of kI4
  Int4Kind kind = Int4Kind::kOffset;
  Buffer weights;  // packed; the layout is the backend's
  Buffer scales;   // [n_out padded] f32, quantised dtypes only
  Buffer bias;     // [n_out padded] f32, if any source has one
};

// The bytes of a packed matrix outside a backend: what the three buffers of a Linear hold.
struct PackedBytes {
  std::span<const std::byte> weights;
  std::span<const std::byte> scales;
  std::span<const std::byte> bias;
};

// Geometry of a KV cache. One block is contiguous over all layers, so that copying a block is one
// copy: [n_blocks][n_layers][K, V][n_kv_heads][block_tokens][head_dim].
struct KvGeometry {
  DType dtype = DType::kF32;  // kF32, kBf16, kF16 or kF8E4M3
  std::int32_t n_layers = 0;
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_tokens = 16;

  constexpr std::size_t plane_bytes() const {  // K or V of one layer in one block
    return size_bytes(dtype) * static_cast<std::size_t>(n_kv_heads) *
           static_cast<std::size_t>(block_tokens) * static_cast<std::size_t>(head_dim);
  }
  constexpr std::size_t block_bytes() const {
    return plane_bytes() * 2 * static_cast<std::size_t>(n_layers);
  }
};

// Whether a KV cache can hold elements of this type.
constexpr bool is_kv_dtype(DType dtype) { return dtype != DType::kI8 && dtype != DType::kI4; }

// The paged KV cache as every kernel sees it. Borrowed; the owner of `blocks` outlives the call.
struct PagedKv {
  KvGeometry geometry;
  std::byte* blocks = nullptr;  // [n_blocks] of geometry.block_bytes()
  std::int32_t n_blocks = 0;
  // kF8E4M3 only: [n_layers][K, V][n_kv_heads] f32, an element is its code times the scale, what
  // lies beyond 448 times it becomes that; null: all scales are one.
  const float* scales = nullptr;
};

// Where in PagedKv::scales the scale of keys (or values) of a head is.
constexpr std::int64_t kv_scale_index(const KvGeometry& geometry,
                                      std::int32_t layer,
                                      bool is_value,
                                      std::int32_t head) {
  return (std::int64_t{2} * layer + (is_value ? 1 : 0)) * geometry.n_kv_heads + head;
}

}  // namespace foretoken
