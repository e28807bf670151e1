// The JSON of safetensors: headers and indexes, read with suspicion, and written.
#include <algorithm>
#include <array>
#include <limits>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/model/safetensors.h"

namespace foretoken {
namespace {

struct TypeRow {
  TensorType type;
  std::string_view name;
  std::size_t size_bytes;
};

constexpr std::array<TypeRow, 15> kTypes{{
    {TensorType::kF64, "F64", 8},
    {TensorType::kI64, "I64", 8},
    {TensorType::kU64, "U64", 8},
    {TensorType::kF32, "F32", 4},
    {TensorType::kI32, "I32", 4},
    {TensorType::kU32, "U32", 4},
    {TensorType::kF16, "F16", 2},
    {TensorType::kBf16, "BF16", 2},
    {TensorType::kI16, "I16", 2},
    {TensorType::kU16, "U16", 2},
    {TensorType::kI8, "I8", 1},
    {TensorType::kU8, "U8", 1},
    {TensorType::kBool, "BOOL", 1},
    {TensorType::kF8E4M3, "F8_E4M3", 1},
    {TensorType::kF8E5M2, "F8_E5M2", 1},
}};

constexpr std::size_t kMaxDimensions = 8;
constexpr std::size_t kMaxNameBytes = 512;

Error malformed(std::string what) { return {ErrorCode::kMalformed, std::move(what)}; }

// Names come from the file and go into messages: bounded, and no control characters.
std::string in_quotes(std::string_view name) {
  std::string out = "\"";
  for (char c : name.substr(0, 96))
    out += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? '?' : c;
  return out + (name.size() > 96 ? "…\"" : "\"");
}

bool printable(std::string_view name) {
  return std::ranges::none_of(
      name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

Result<std::uint64_t> multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return malformed("shape overflows 64 bits");
  return product;
}

Result<void> read_shape(const Json& shape, TensorInfo& tensor) {
  if (!shape.is_array()) return malformed("\"shape\" must be a list");
  if (shape.size() > kMaxDimensions)
    return malformed("has " + std::to_string(shape.size()) + " dimensions; the limit is 8");
  for (const Json& dimension : shape) {
    if (!dimension.is_number_unsigned())
      return malformed("\"shape\" must hold whole numbers from 0 on");
    const auto value = dimension.get<std::uint64_t>();
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return malformed("shape overflows 64 bits");
    tensor.shape.push_back(static_cast<std::int64_t>(value));
  }
  return {};
}

Result<void> read_offsets(const Json& offsets, std::uint64_t data_bytes, TensorInfo& tensor) {
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    return malformed("\"data_offsets\" must be two whole numbers from 0 on");
  tensor.begin = offsets[0].get<std::uint64_t>();
  tensor.end = offsets[1].get<std::uint64_t>();
  if (tensor.begin > tensor.end) return malformed("ends before it begins");
  if (tensor.end > data_bytes) {
    return malformed("ends at byte " + std::to_string(tensor.end) + " of the data, which has " +
                     std::to_string(data_bytes) + ": the file is cut short");
  }
  return {};
}

Result<void> check_size(const TensorInfo& tensor) {
  std::uint64_t bytes = size_bytes(tensor.type);
  // A zero dimension makes the product 0 whatever overflows beside it, so every factor is checked
  // on the way.
  for (std::int64_t dimension : tensor.shape) {
    auto product = multiply(bytes, static_cast<std::uint64_t>(dimension));
    if (!product.ok()) return product.error();
    bytes = *product;
  }
  if (bytes != tensor.end - tensor.begin) {
    return malformed("has " + std::to_string(tensor.end - tensor.begin) +
                     " bytes; dtype and shape " + shape_text(tensor.shape) + " need " +
                     std::to_string(bytes));
  }
  if (tensor.begin % size_bytes(tensor.type) != 0)
    return malformed("begins at byte " + std::to_string(tensor.begin) +
                     ", which is not aligned to its elements");
  return {};
}

Result<void> read_tensor(const Json& entry, std::uint64_t data_bytes, TensorInfo& tensor) {
  if (!entry.is_object()) return malformed("must be an object");
  for (const auto& [key, value] : entry.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      return malformed("has an unknown key " + in_quotes(key));
  const auto dtype = entry.find("dtype"), shape = entry.find("shape"),
             offsets = entry.find("data_offsets");
  if (dtype == entry.end() || !dtype->is_string()) return malformed("needs \"dtype\", a string");
  if (shape == entry.end()) return malformed("needs \"shape\"");
  if (offsets == entry.end()) return malformed("needs \"data_offsets\"");
  const auto type = tensor_type_from_name(dtype->get_ref<const std::string&>());
  if (!type)
    return malformed("has dtype " + in_quotes(dtype->get_ref<const std::string&>()) +
                     ", which is not known");
  tensor.type = *type;
  if (auto result = read_shape(*shape, tensor); !result.ok()) return result;
  if (auto result = read_offsets(*offsets, data_bytes, tensor); !result.ok()) return result;
  return check_size(tensor);
}

Result<void> check_metadata(const Json& metadata) {
  if (!metadata.is_object()) return malformed("\"__metadata__\" must be an object");
  for (const auto& [key, value] : metadata.items())
    if (!value.is_string())
      return malformed("\"__metadata__\" key " + in_quotes(key) + " must be a string");
  return {};
}

// Sorted by place, tensors must follow one another from 0 to the end: no byte unused, none used
// twice.
Result<void> check_layout(std::vector<TensorInfo>& tensors, std::uint64_t data_bytes) {
  std::ranges::sort(tensors, [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t expected = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin != expected) {
      return malformed(
          "tensor " + in_quotes(tensor.name) + " begins at byte " + std::to_string(tensor.begin) +
          (tensor.begin < expected ? ", inside the one before it" : ", after a hole from byte ") +
          (tensor.begin < expected ? "" : std::to_string(expected)));
    }
    expected = tensor.end;
  }
  if (expected != data_bytes) {
    return malformed("tensors end at byte " + std::to_string(expected) +
                     " of the data, but it has " + std::to_string(data_bytes));
  }
  return {};
}

}  // namespace

std::size_t size_bytes(TensorType type) {
  return kTypes[static_cast<std::size_t>(type)].size_bytes;
}
std::string_view tensor_type_name(TensorType type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}

std::optional<TensorType> tensor_type_from_name(std::string_view name) {
  for (const TypeRow& row : kTypes)
    if (row.name == name) return row.type;
  return std::nullopt;
}

TensorType tensor_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return TensorType::kF32;
    case DType::kBf16:
      return TensorType::kBf16;
    case DType::kF16:
      return TensorType::kF16;
    case DType::kI8:
      return TensorType::kI8;
    case DType::kF8E4M3:
      return TensorType::kF8E4M3;
    case DType::kI4:
      break;  // no type of safetensors
  }
  FORETOKEN_CHECK(false, "no type of safetensors");
}

std::optional<DType> dtype_of(TensorType type) {
  for (DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kI8, DType::kF8E4M3})
    if (tensor_type(dtype) == type) return dtype;
  return std::nullopt;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::int64_t dimension : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
  return text + "]";
}

Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header,
                                                         std::uint64_t data_bytes) {
  if (!header.starts_with('{'))
    return malformed("the header does not begin with '{': not a safetensors file");
  auto parsed = parse_json(header, {.max_bytes = kMaxSafetensorsHeader, .max_depth = 8});
  if (!parsed.ok()) return malformed("the header is " + parsed.error().message);
  if (!parsed->is_object()) return malformed("the header must be an object");
  if (parsed->size() > kMaxTensors + 1) {
    return malformed("the header names " + std::to_string(parsed->size()) +
                     " tensors; the limit is " + std::to_string(kMaxTensors));
  }
  std::vector<TensorInfo> tensors;
  for (const auto& [name, entry] : parsed->items()) {
    if (name == "__metadata__") {
      if (auto metadata = check_metadata(entry); !metadata.ok()) return metadata.error();
      continue;
    }
    if (name.empty() || name.size() > kMaxNameBytes || !printable(name))
      return malformed("tensor name " + in_quotes(name) +
                       " is empty, longer than 512 bytes or not printable");
    TensorInfo tensor{.name = name, .type = {}, .shape = {}, .begin = 0, .end = 0};
    if (auto result = read_tensor(entry, data_bytes, tensor); !result.ok())
      return malformed("tensor " + in_quotes(name) + ": " + result.error().message);
    tensors.push_back(std::move(tensor));
  }
  if (auto layout = check_layout(tensors, data_bytes); !layout.ok()) return layout.error();
  return tensors;
}

Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view json) {
  auto parsed = parse_json(json, {.max_bytes = kMaxSafetensorsHeader, .max_depth = 8});
  if (!parsed.ok()) return parsed.error();
  if (!parsed->is_object()) return malformed("must be an object");
  const auto map = parsed->find("weight_map");
  if (map == parsed->end() || !map->is_object())
    return malformed("needs \"weight_map\", an object");
  if (map->empty()) return malformed("\"weight_map\" is empty");
  if (map->size() > kMaxTensors)
    return malformed("\"weight_map\" names more than " + std::to_string(kMaxTensors) + " tensors");
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string())
      return malformed("\"weight_map\" entry " + in_quotes(tensor) + " must be a file name");
    const auto& name = file.get_ref<const std::string&>();
    // A plain name stays in the folder; anything with a separator, or a leading dot, might not.
    if (name.empty() || name.size() > 255 || name.front() == '.' ||
        name.find_first_of("/\\") != std::string::npos || !printable(name) ||
        !name.ends_with(".safetensors")) {
      return malformed("\"weight_map\" places tensor " + in_quotes(tensor) + " in " +
                       in_quotes(name) +
                       "; it must be the plain name of a .safetensors file beside the index");
    }
    weight_map[tensor] = name;
  }
  return weight_map;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::span<const Plan> tensors)
    : path_(path), out_(path, std::ios::binary | std::ios::trunc) {
  OrderedJson header = OrderedJson::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::uint64_t begin = 0;
  for (const Plan& plan : tensors) {
    std::uint64_t bytes = size_bytes(plan.type);
    for (std::int64_t dimension : plan.shape) bytes *= static_cast<std::uint64_t>(dimension);
    FORETOKEN_CHECK(begin % size_bytes(plan.type) == 0, "larger elements must come first");
    FORETOKEN_CHECK(!header.contains(plan.name), "a tensor is planned twice");
    header[plan.name] = {{"dtype", tensor_type_name(plan.type)},
                         {"shape", plan.shape},
                         {"data_offsets", {begin, begin + bytes}}};
    begin += bytes;
  }
  bytes_left_ = begin;
  std::string text = to_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  out_.write(reinterpret_cast<const char*>(&length), sizeof length);
  out_.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!out_) throw FatalError(ErrorCode::kIo, path_.string() + ": cannot write");
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  FORETOKEN_CHECK(bytes.size() <= bytes_left_, "more bytes than planned");
  bytes_left_ -= bytes.size();
  out_.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!out_)
    throw FatalError(ErrorCode::kIo, path_.string() + ": cannot write (is the disk full?)");
}

void SafetensorsWriter::finish() {
  FORETOKEN_CHECK(bytes_left_ == 0, "fewer bytes than planned");
  out_.close();
  if (!out_)
    throw FatalError(ErrorCode::kIo, path_.string() + ": cannot write (is the disk full?)");
}

void write_safetensors_index(const std::filesystem::path& folder,
                             const std::map<std::string, std::string>& weight_map,
                             std::uint64_t total_bytes) {
  OrderedJson index = {{"metadata", {{"total_size", total_bytes}}},
                       {"weight_map", OrderedJson::object()}};
  for (const auto& [tensor, file] : weight_map) index["weight_map"][tensor] = file;
  const auto path = folder / "model.safetensors.index.json";
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << to_text(index, 2) << '\n';
  out.close();
  if (!out) throw FatalError(ErrorCode::kIo, path.string() + ": cannot write");
}

}  // namespace foretoken
