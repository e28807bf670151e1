#include "common/model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "common/base/check.h"
#include "common/base/file.h"

namespace foretoken {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors is little-endian, and so are our kernels");

[[noreturn]] void fail(ErrorCode code, const std::filesystem::path& path, const std::string& what) {
  throw FatalError(code, path.string() + ": " + what);
}

[[noreturn]] void fail_errno(const std::filesystem::path& path, const char* what) {
  fail(ErrorCode::kIo, path, std::string(what) + ": " + std::generic_category().message(errno));
}

// A descriptor that closes itself, and what fstat said of it.
struct OpenFile {
  explicit OpenFile(const std::filesystem::path& path) {
    // O_NONBLOCK: opening a FIFO must not wait for a writer; regular files ignore it.
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) fail_errno(path, "cannot open");
    if (::fstat(fd, &status) != 0) {
      ::close(fd);
      fail_errno(path, "cannot stat");
    }
    if (!S_ISREG(status.st_mode)) {
      ::close(fd);
      fail(ErrorCode::kIo, path, "is not a regular file");
    }
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
  int release() { return std::exchange(fd, -1); }
  std::uint64_t size() const { return static_cast<std::uint64_t>(status.st_size); }

  int fd = -1;
  struct stat status {};
};

void read_exactly(const std::filesystem::path& path,
                  int fd,
                  void* into,
                  std::size_t n_bytes,
                  std::uint64_t from) {
  auto* cursor = static_cast<char*>(into);
  while (n_bytes > 0) {
    const ssize_t got = ::pread(fd, cursor, n_bytes, static_cast<off_t>(from));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(path, "cannot read");
    if (got == 0) fail(ErrorCode::kMalformed, path, "ended while it was being read");
    cursor += got;
    from += static_cast<std::uint64_t>(got);
    n_bytes -= static_cast<std::size_t>(got);
  }
}

std::int64_t in_ns(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  OpenFile file(path);
  file_bytes_ = file.size();
  modified_ns_ = in_ns(file.status.st_mtim);
  changed_ns_ = in_ns(file.status.st_ctim);
  inode_ = file.status.st_ino;
  device_ = file.status.st_dev;
  if (file_bytes_ < 8) {
    fail(ErrorCode::kMalformed, path,
         "has " + std::to_string(file_bytes_) +
             " bytes; a safetensors file begins with 8 that give its header's length");
  }
  std::array<char, 64> begin{};
  read_exactly(path, file.fd, begin.data(), std::min<std::uint64_t>(begin.size(), file_bytes_), 0);
  if (is_lfs_pointer({begin.data(), begin.size()}))
    fail(ErrorCode::kMalformed, path, std::string(kIsLfsPointer));
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, begin.data(), sizeof header_bytes);
  if (header_bytes > kMaxSafetensorsHeader) {
    fail(ErrorCode::kMalformed, path,
         "announces a header of " + std::to_string(header_bytes) + " bytes; the limit is " +
             std::to_string(kMaxSafetensorsHeader) + ": it is not a safetensors file");
  }
  if (header_bytes > file_bytes_ - 8) {
    fail(ErrorCode::kMalformed, path,
         "announces a header of " + std::to_string(header_bytes) + " bytes, but only " +
             std::to_string(file_bytes_ - 8) + " follow: the file is cut short or not safetensors");
  }
  if (header_bytes % 8 != 0) {
    fail(ErrorCode::kMalformed, path,
         "has a header of " + std::to_string(header_bytes) +
             " bytes; a multiple of 8 keeps tensors aligned");
  }
  std::string header(header_bytes, '\0');
  read_exactly(path, file.fd, header.data(), header.size(), 8);
  data_begin_ = 8 + header_bytes;
  auto tensors = parse_safetensors_header(header, file_bytes_ - data_begin_);
  if (!tensors.ok()) fail(tensors.error().code, path, tensors.error().message);
  tensors_ = std::move(tensors).value();

  void* map = ::mmap(nullptr, file_bytes_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (map == MAP_FAILED) fail_errno(path, "cannot map");
  map_ = static_cast<std::byte*>(map);
  (void)::madvise(map, file_bytes_, MADV_WILLNEED);
  fd_ = file.release();
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      tensors_(std::move(other.tensors_)),
      fd_(std::exchange(other.fd_, -1)),
      map_(std::exchange(other.map_, nullptr)),
      file_bytes_(other.file_bytes_),
      data_begin_(other.data_begin_),
      modified_ns_(other.modified_ns_),
      changed_ns_(other.changed_ns_),
      inode_(other.inode_),
      device_(other.device_) {}

SafetensorsFile::~SafetensorsFile() {
  if (map_ != nullptr) ::munmap(map_, file_bytes_);
  if (fd_ >= 0) ::close(fd_);
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  return {map_ + data_begin_ + tensor.begin, static_cast<std::size_t>(tensor.end - tensor.begin)};
}

void SafetensorsFile::release(const TensorInfo& tensor) const noexcept {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = (data_begin_ + tensor.begin + page - 1) / page * page;
  const std::uint64_t end = (data_begin_ + tensor.end) / page * page;
  if (begin < end) (void)::madvise(map_ + begin, end - begin, MADV_DONTNEED);
}

void SafetensorsFile::check_unchanged() const {
  struct stat now {};
  if (::fstat(fd_, &now) != 0) fail_errno(path_, "cannot stat");
  if (static_cast<std::uint64_t>(now.st_size) != file_bytes_ ||
      in_ns(now.st_mtim) != modified_ns_ || in_ns(now.st_ctim) != changed_ns_)
    fail(ErrorCode::kIo, path_, "changed while it was being read; load it again");
}

std::string SafetensorsFile::identity() const {
  std::string text = path_.filename().string();
  for (const auto number : {static_cast<std::int64_t>(device_), static_cast<std::int64_t>(inode_),
                            static_cast<std::int64_t>(file_bytes_), modified_ns_, changed_ns_})
    text += " " + std::to_string(number);
  return text + "\n";
}

std::string Checkpoint::identity() const {
  std::string text;
  for (const auto& file : files_) text += file->identity();
  return text;
}

std::int64_t Checkpoint::changed_ns() const {
  std::int64_t last = 0;
  for (const auto& file : files_) last = std::max(last, file->changed_ns());
  return last;
}

namespace {

// AutoGPTQ calls the file gptq_model-4bit-128g.safetensors, or as its caller likes. Of several
// files none is chosen.
std::optional<std::filesystem::path> only_safetensors_file(const std::filesystem::path& folder) {
  std::optional<std::filesystem::path> only;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    const bool is_hidden = path.filename().string().starts_with('.');
    if (path.extension() != ".safetensors" || is_hidden) continue;
    if (only) return std::nullopt;
    only = path;
  }
  return only;
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& folder) : folder_(folder) {
  const auto single = folder / "model.safetensors";
  const auto index = folder / "model.safetensors.index.json";
  std::error_code ignored;
  if (std::filesystem::exists(single, ignored)) {
    open_single(single);
    return;
  }
  if (std::filesystem::exists(index, ignored)) {
    open_index(folder, index);
    return;
  }
  if (const auto other = only_safetensors_file(folder)) {
    open_single(*other);
    return;
  }
  const bool has_pickle = std::filesystem::exists(folder / "pytorch_model.bin", ignored) ||
                          std::filesystem::exists(folder / "pytorch_model.bin.index.json", ignored);
  fail(ErrorCode::kIo, folder,
       has_pickle
           ? "has pytorch_model.bin but no model.safetensors; pickled weights are not read, "
             "convert them"
           : "has neither model.safetensors nor model.safetensors.index.json, nor exactly one "
             "safetensors file of another name");
}

void Checkpoint::open_single(const std::filesystem::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  const auto& tensors = files_.back()->tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) by_name_[tensors[i].name] = {0, i};
}

void Checkpoint::open_index(const std::filesystem::path& folder,
                            const std::filesystem::path& path) {
  auto parsed =
      parse_safetensors_index(value_or_throw(read_text_file(path, kMaxSafetensorsHeader)));
  if (!parsed.ok()) fail(parsed.error().code, path, parsed.error().message);
  const auto& weight_map = *parsed;

  std::map<std::string, std::size_t> opened;
  for (const auto& [tensor, file] : weight_map) {
    if (opened.contains(file)) continue;
    if (opened.size() == kMaxShards)
      fail(ErrorCode::kMalformed, path, "names more than " + std::to_string(kMaxShards) + " files");
    opened[file] = files_.size();
    files_.push_back(std::make_unique<SafetensorsFile>(folder / file));
  }
  for (const auto& [file, number] : opened) {
    const auto& tensors = files_[number]->tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto entry = weight_map.find(tensors[i].name);
      if (entry == weight_map.end())
        fail(ErrorCode::kMalformed, path,
             "does not list tensor " + tensors[i].name + ", which " + file + " holds");
      if (entry->second != file) {
        fail(ErrorCode::kMalformed, path,
             "places tensor " + tensors[i].name + " in " + entry->second + ", but " + file +
                 " holds one too");
      }
      by_name_[tensors[i].name] = {number, i};
    }
  }
  for (const auto& [tensor, file] : weight_map)
    if (!contains(tensor))
      fail(ErrorCode::kMalformed, path,
           "places tensor " + tensor + " in " + file + ", which does not hold it");
}

Checkpoint::Tensor Checkpoint::at(std::string_view name) const {
  const auto found = by_name_.find(name);
  FORETOKEN_CHECK(found != by_name_.end());
  const SafetensorsFile& file = *files_[found->second.file];
  const TensorInfo& info = file.tensors()[found->second.tensor];
  return {&info, &file, file.bytes(info)};
}

Checkpoint::Tensor Checkpoint::get(std::string_view name,
                                   std::span<const TensorType> types,
                                   std::span<const std::int64_t> shape) const {
  if (!contains(name)) {
    fail(ErrorCode::kMalformed, folder_,
         "no tensor " + std::string(name) + "; the config implies one of shape " +
             shape_text(shape));
  }
  Tensor tensor = at(name);
  if (!std::ranges::equal(tensor.info->shape, shape)) {
    fail(ErrorCode::kMalformed, tensor.file->path(),
         "tensor " + std::string(name) + " has shape " + shape_text(tensor.info->shape) +
             "; the config implies " + shape_text(shape));
  }
  if (std::ranges::find(types, tensor.info->type) == types.end()) {
    std::string expected;
    for (TensorType type : types)
      expected += (expected.empty() ? "" : ", ") + std::string(tensor_type_name(type));
    fail(ErrorCode::kUnsupportedModel, tensor.file->path(),
         "tensor " + std::string(name) + " has dtype " +
             std::string(tensor_type_name(tensor.info->type)) + "; supported here: " + expected);
  }
  return tensor;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(by_name_.size());
  for (const auto& [name, place] : by_name_) names.push_back(name);
  return names;
}

std::uint64_t Checkpoint::total_bytes() const {
  std::uint64_t total = 0;
  for (const auto& file : files_)
    for (const TensorInfo& tensor : file->tensors()) total += tensor.end - tensor.begin;
  return total;
}

void Checkpoint::check_unchanged() const {
  for (const auto& file : files_) file->check_unchanged();
}

}  // namespace foretoken
