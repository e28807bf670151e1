// Weights on disk: safetensors files, alone or behind an index. A file is from outside, so the
// header is read and checked to the last byte before anything is mapped; then a tensor is asked for
// with the dtypes and the shape that the config implies, and comes as a read-only span that lives
// as long as the Checkpoint. Uses no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "kernels/include/types.h"

namespace foretoken {

inline constexpr std::uint64_t kMaxSafetensorsHeader =
    16u << 20;                                       // the format itself would allow 100 MB
inline constexpr std::size_t kMaxTensors = 100'000;  // a 400-layer model has fewer than 6,000
inline constexpr std::size_t kMaxShards = 2'000;

// Element types of the format that have a fixed size in whole bytes.
enum class TensorType : std::uint8_t {
  kF64,
  kI64,
  kU64,
  kF32,
  kI32,
  kU32,
  kF16,
  kBf16,
  kI16,
  kU16,
  kI8,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2
};

std::size_t size_bytes(TensorType type);
std::string_view tensor_type_name(TensorType type);  // as headers have it: "BF16"
std::optional<TensorType> tensor_type_from_name(std::string_view name);
TensorType tensor_type(DType dtype);
std::optional<DType> dtype_of(TensorType type);  // nothing for types no kernel reads

struct TensorInfo {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // within the data that follows the header
  std::uint64_t end = 0;

  std::uint64_t n_elements() const { return (end - begin) / size_bytes(type); }
};

std::string shape_text(std::span<const std::int64_t> shape);  // "[64, 32]"

// The JSON part of a file whose data part has `data_bytes`. Tensors come in the order of their
// data.
Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header,
                                                         std::uint64_t data_bytes);

// tensor -> file name. Names of files that could leave the folder are refused.
Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view json);

// One file, mapped read-only.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(
      const std::filesystem::path& path);  // throws FatalError(kIo | kMalformed)
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) = delete;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  ~SafetensorsFile();

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;
  // Gives back the memory of its pages, but for those that neighbours share. Bytes may be read
  // again.
  void release(const TensorInfo& tensor) const noexcept;
  // Throws if the file is no longer the one that was opened: what was read from it may be a
  // mixture.
  void check_unchanged() const;
  // Names these contents on this host, without reading them: file, size and times of the last
  // change. A program cannot set the time at which an inode changed.
  std::string identity() const;
  std::int64_t changed_ns() const { return changed_ns_; }  // since 1970

 private:
  std::filesystem::path path_;
  std::vector<TensorInfo> tensors_;
  int fd_ = -1;
  std::byte* map_ = nullptr;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t data_begin_ = 0;
  std::int64_t modified_ns_ = 0;
  std::int64_t changed_ns_ = 0;
  std::uint64_t inode_ = 0;
  std::uint64_t device_ = 0;
};

// All tensors of a folder: model.safetensors, or the files of model.safetensors.index.json; where
// neither is there, of its only safetensors file.
class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& folder);  // throws FatalError(kIo | kMalformed)

  struct Tensor {
    const TensorInfo* info = nullptr;
    const SafetensorsFile* file = nullptr;
    std::span<const std::byte> bytes;
  };

  // Throws FatalError(kMalformed) naming file, tensor, expectation and finding.
  Tensor get(std::string_view name,
             std::span<const TensorType> types,
             std::span<const std::int64_t> shape) const;
  bool contains(std::string_view name) const { return by_name_.find(name) != by_name_.end(); }
  std::vector<std::string> names() const;  // ascending
  Tensor at(std::string_view name) const;  // must exist
  std::uint64_t total_bytes() const;
  std::size_t n_files() const { return files_.size(); }
  std::string identity() const;     // of all files
  std::int64_t changed_ns() const;  // of the one that changed last
  void check_unchanged() const;

 private:
  void open_single(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& folder, const std::filesystem::path& path);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  struct Place {
    std::size_t file;
    std::size_t tensor;
  };
  std::map<std::string, Place, std::less<>> by_name_;
};

// Writes one file: the header at once, then the tensors' bytes in the order of the list, in pieces
// of any size.
class SafetensorsWriter {
 public:
  struct Plan {
    std::string name;
    TensorType type;
    std::vector<std::int64_t> shape;
  };
  // Types of larger elements come first, so that everything is aligned. Throws FatalError(kIo).
  SafetensorsWriter(const std::filesystem::path& path, std::span<const Plan> tensors);
  void append(std::span<const std::byte> bytes);
  void finish();  // every planned byte must have come

 private:
  std::filesystem::path path_;
  std::ofstream out_;
  std::uint64_t bytes_left_ = 0;
};

// The index of a sharded checkpoint.
void write_safetensors_index(const std::filesystem::path& folder,
                             const std::map<std::string, std::string>& weight_map,
                             std::uint64_t total_bytes);

}  // namespace foretoken
