#include "common/config/resolve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace foretoken {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string default_runtime_directory() {
  // systemd separates several folders by colons; ours is the first.
  if (const auto dir = variable("RUNTIME_DIRECTORY"); dir.starts_with('/'))
    return dir.substr(0, dir.find(':'));
  std::error_code unreadable;  // another user's
  if (const auto dir = variable("XDG_RUNTIME_DIR");
      dir.starts_with('/') && fs::is_directory(dir, unreadable))
    return dir + "/foretoken";
  return "/tmp/foretoken-" + std::to_string(::geteuid());
}

// "ipc://name" means a file in the runtime directory, "ipc:///path" that path.
std::string full(const BusSection& bus, std::string endpoint, const std::string& id) {
  for (auto at = endpoint.find("{id}"); at != std::string::npos; at = endpoint.find("{id}"))
    endpoint.replace(at, 4, id);
  if (endpoint.rfind("ipc://", 0) != 0 || endpoint.rfind("ipc:///", 0) == 0) return endpoint;
  return "ipc://" + runtime_directory(bus) + "/" + endpoint.substr(6);
}

// One word of CUDA_VISIBLE_DEVICES: a number, or the beginning of a UUID.
bool names_a_device(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
  if (word.starts_with("GPU-") || word.starts_with("MIG-")) return true;
  return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string counted(int n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

}  // namespace

std::string runtime_directory(const BusSection& bus) {
  std::string dir = bus.runtime_dir.empty() ? default_runtime_directory() : bus.runtime_dir;
  std::error_code error;
  if (!fs::exists(dir, error)) {
    fs::create_directories(fs::path(dir).parent_path(), error);
    if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST)
      throw FatalError(ErrorCode::kIo,
                       "bus.runtime_dir: " + dir + " cannot be made: " + std::strerror(errno));
  }
  struct stat info {};
  if (::lstat(dir.c_str(), &info) != 0 || !(S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode)))
    throw FatalError(ErrorCode::kIo, "bus.runtime_dir: " + dir + " is not a folder");
  // The folder's owner, or who may write to it, could replace our sockets; root may have made
  // it for us.
  const auto refuse_foreign = [&](const char* what) {
    if (info.st_uid != ::geteuid() && info.st_uid != 0)
      throw FatalError(ErrorCode::kIo, "bus.runtime_dir: " + dir + " " + what +
                                           " belongs to another user (uid " +
                                           std::to_string(info.st_uid) + ")");
  };
  const bool is_link = S_ISLNK(info.st_mode);
  refuse_foreign(is_link ? "is a link that" : "is a folder that");
  if (is_link) {
    if (::stat(dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
      throw FatalError(ErrorCode::kIo,
                       "bus.runtime_dir: " + dir + " is a link and leads to no folder");
    refuse_foreign("is a link to a folder that");
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    std::array<char, 8> mode{};
    std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(info.st_mode & 07777));
    throw FatalError(ErrorCode::kIo,
                     "bus.runtime_dir: " + dir + " has mode " + mode.data() +
                         ", so others may write to it; it must be writable by its owner "
                         "only (chmod 700)");
  }
  return dir;
}

std::string router_endpoint(const BusSection& bus) { return full(bus, bus.router, "0"); }
std::string client_endpoint(const BusSection& bus) { return full(bus, bus.client, "0"); }

std::string memory_endpoint(const BusSection& bus, const std::string& id) {
  return "shm://" + runtime_directory(bus) + "/draft-" + id + ".memory";
}

std::string draft_endpoint(const BusSection& bus, const std::string& id) {
  std::size_t index = bus.draft.size();
  const char* end = id.data() + id.size();
  const auto read = std::from_chars(id.data(), end, index);
  // "8b-0" is a name.
  const bool is_number = read.ec == std::errc{} && read.ptr == end;
  if (!is_number) index = bus.draft.size();
  // The one entry of an instance that has a name is its own.
  if (!is_number && bus.draft.size() == 1) index = 0;
  if (index < bus.draft.size()) return full(bus, bus.draft[index], id);
  if (bus.draft.empty() || bus.draft.back().find("{id}") == std::string::npos)
    throw FatalError(ErrorCode::kConfig, "bus.draft has " + std::to_string(bus.draft.size()) +
                                             " entries and none with {id}: there "
                                             "is no endpoint for --id " +
                                             id);
  return full(bus, bus.draft.back(), id);
}

std::string program_folder() {
  if (auto folder = variable("FORETOKEN_PROGRAMS"); !folder.empty()) return folder;
  return fs::read_symlink("/proc/self/exe").parent_path().string();
}

std::string model_folder(const std::string& configured, const std::string& role) {
  if (configured != "demo") return configured;
  const std::string name = "demo-" + role;
  std::vector<fs::path> places;
  if (const auto dir = variable("FORETOKEN_MODELS"); !dir.empty()) places.emplace_back(dir);
  std::error_code error;
  const fs::path self = program_folder();
  // <prefix>/bin -> <prefix>/share; build/<preset>/bin/foretoken-target -> the source tree.
  places.push_back(self / "../share/foretoken/models");
#ifdef FORETOKEN_SOURCE_MODELS
  places.push_back(self / "../../../models");
  places.emplace_back(FORETOKEN_SOURCE_MODELS);
#endif
  std::string tried;
  for (const auto& place : places) {
    const fs::path folder = (place / name).lexically_normal();
    if (fs::exists(folder / "config.json", error)) return folder.string();
    tried += (tried.empty() ? "" : ", ") + folder.string();
  }
  throw FatalError(ErrorCode::kConfig, "model." + role + " is \"demo\" and there is no " + name +
                                           " with a config.json; looked at " + tried);
}

DraftSource draft_source(const ModelSection& model) {
  if (model.draft == kSelfDraft) return {model_folder(model.target, "target"), "int4"};
  return {model_folder(model.draft, "draft"), model.dtype};
}

std::string packed_cache_folder(const ModelSection& model) {
  if (model.packed_cache == "off") return {};
  if (model.packed_cache != "auto") return model.packed_cache;
  if (const auto dir = variable("CACHE_DIRECTORY"); !dir.empty())
    return dir.substr(0, dir.find(':'));
  if (const auto dir = variable("XDG_CACHE_HOME"); dir.starts_with('/')) return dir + "/foretoken";
  if (const auto home = variable("HOME"); home.starts_with('/')) return home + "/.cache/foretoken";
  return {};
}

std::string name_of_folder(const std::string& folder) {
  std::error_code ignored;  // of an empty one, which has no name
  fs::path path = fs::absolute(folder, ignored).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "a/b/" is "b"
  return path.filename().string();
}

std::string served_model_name(const ModelSection& model) {
  if (!model.name.empty()) return model.name;
  if (model.target == "demo") return "demo";
  return name_of_folder(model.target);
}

Result<DeviceList> device_list_of(const std::string& configured) {
  const auto wrong = [&](const std::string& why) {
    return Error{ErrorCode::kConfig, "is \"" + configured + "\"; " + why};
  };
  const std::string form = "it must be cpu, cuda, or cuda: and numbers of devices such as cuda:0,1";
  if (configured == "cpu") return DeviceList{};
  if (configured == "cuda") return DeviceList{.is_cuda = true};
  if (!configured.starts_with("cuda:")) return wrong(form);
  DeviceList list{.is_cuda = true};
  std::string_view rest = std::string_view(configured).substr(5);
  while (true) {
    const std::string_view word = rest.substr(0, rest.find(','));
    int number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc{} || end != word.data() + word.size() || number < 0 || number > 999)
      return wrong(form);
    if (std::find(list.numbers.begin(), list.numbers.end(), number) != list.numbers.end())
      return wrong("device " + std::to_string(number) +
                   " is there twice, and each rank needs its own");
    list.numbers.push_back(number);
    if (word.size() == rest.size()) return list;
    rest.remove_prefix(word.size() + 1);
  }
}

Result<std::map<std::string, double>> weights_of(const std::vector<std::string>& configured) {
  constexpr double kLeast = 0.01, kMost = 100;
  std::map<std::string, double> weights;
  for (const std::string& text : configured) {
    const auto equals = text.rfind('=');  // a name may have one
    const std::string name = text.substr(0, equals);
    double weight = 0;
    const char* begin = text.data() + (equals == std::string::npos ? text.size() : equals + 1);
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), weight);
    const bool is_number = error == std::errc{} && end == text.data() + text.size();
    if (name.empty() || !is_number || !(weight >= kLeast && weight <= kMost))
      return Error{ErrorCode::kConfig,
                   "has \"" + text + "\"; each must be NAME=WEIGHT with a weight from 0.01 to 100"};
    if (!weights.emplace(name, weight).second)
      return Error{ErrorCode::kConfig, "names \"" + name + "\" twice"};
  }
  return weights;
}

std::optional<int> visible_devices() {
  return visible_devices(std::getenv("CUDA_VISIBLE_DEVICES"));
}

std::optional<int> visible_devices(const char* variable) {
  if (variable == nullptr) return std::nullopt;
  std::string_view rest = variable;
  for (int n = 0;; ++n) {
    const std::string_view word = rest.substr(0, rest.find(','));
    if (!names_a_device(word)) return n;  // CUDA, too, reads no further
    if (word.size() == rest.size()) return n + 1;
    rest.remove_prefix(word.size() + 1);
  }
}

void check_devices(const std::string& configured,
                   const std::string& key,
                   int n_here,
                   std::optional<int> n_visible) {
  const DeviceList list = value_or_throw(device_list_of(configured));
  if (!list.is_cuda) return;
  const std::string start = key + " is \"" + configured + "\", ";
  const std::string ranks =
      counted(n_here, "rank") + (n_here == 1 ? " runs" : " run") + " on this host";
  const std::string shown = n_visible ? counted(*n_visible, "device") +
                                            (*n_visible == 1 ? " is" : " are") +
                                            " shown (CUDA_VISIBLE_DEVICES)"
                                      : "";
  const auto n_listed = static_cast<int>(list.numbers.size());
  if (list.numbers.empty()) {
    if (n_visible && *n_visible < n_here)
      throw FatalError(ErrorCode::kConfig,
                       start + ranks + " and " + shown + ": each rank needs its own");
    return;
  }
  if (n_listed < n_here)
    throw FatalError(ErrorCode::kConfig, start + counted(n_listed, "device") + ", and " + ranks +
                                             ": each needs its own");
  const auto last = list.numbers.begin() + n_here;  // a host with fewer ranks leaves the rest
  const int highest = *std::max_element(list.numbers.begin(), last);
  if (n_visible && highest >= *n_visible)
    throw FatalError(ErrorCode::kConfig,
                     start + "and " + shown + ": numbers begin at 0, there is no " +
                         std::to_string(highest) +
                         "; where each rank is shown a device of its own, it must be \"cuda\"");
}

std::string rank_device(const std::string& configured,
                        const std::string& key,
                        const DeviceView& view) {
  const DeviceList list = value_or_throw(device_list_of(configured));
  if (!list.is_cuda) return "cpu";
  if (list.numbers.empty() && view.n_visible == 1) return "cuda:0";
  check_devices(configured, key, view.n_here, view.n_visible);
  if (list.numbers.empty()) return "cuda:" + std::to_string(view.index_here);
  return "cuda:" + std::to_string(list.numbers[static_cast<std::size_t>(view.index_here)]);
}

bool is_token_count(const std::string& amount) {
  std::int64_t number = 0;
  const char* end = amount.data() + amount.size();
  const auto [rest, error] = std::from_chars(amount.data(), end, number);
  return error == std::errc{} && number > 0 && number <= 1'000'000'000'000 &&
         std::string_view(rest, static_cast<std::size_t>(end - rest)) == " tokens";
}

Result<std::uint64_t> memory_bytes(const std::string& amount, std::uint64_t free_bytes) {
  const auto wrong = [&] {
    return Error{ErrorCode::kConfig,
                 "is \"" + amount +
                     "\"; it must be a share such as 60% (above 0, at most 95), an amount such as "
                     "512MiB or 8GiB, or a number of tokens such as \"56000 tokens\""};
  };
  double number = 0;
  const auto [end, error] = std::from_chars(amount.data(), amount.data() + amount.size(), number);
  if (error != std::errc{} || !(number > 0)) return wrong();
  const std::string_view unit(end, static_cast<std::size_t>(amount.data() + amount.size() - end));
  if (unit == "%") {
    if (number > 95) return wrong();
    return static_cast<std::uint64_t>(static_cast<double>(free_bytes) * number / 100);
  }
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"B", 1},
      {"KiB", 1024},
      {"MiB", 1024.0 * 1024},
      {"GiB", 1024.0 * 1024 * 1024},
      {"TiB", 1024.0 * 1024 * 1024 * 1024}};
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    if (number * factor > 1e15) return wrong();
    return static_cast<std::uint64_t>(number * factor);
  }
  return wrong();
}

}  // namespace foretoken
