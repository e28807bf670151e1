// From configured words to what they mean on this machine: ipc names to paths, "demo" to a folder,
// "60%" to bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/config/sections.h"

namespace foretoken {

// Folder of ipc names; created with mode 0700 if missing. Throws FatalError if it cannot be, or
// belongs to another user.
std::string runtime_directory(const BusSection& bus);
// Full endpoints, as the transport takes them. `id` is the instance: "0".
std::string router_endpoint(const BusSection& bus);
std::string client_endpoint(const BusSection& bus);
std::string draft_endpoint(const BusSection& bus,
                           const std::string& id);  // throws FatalError naming bus.draft
// Where a draft takes links through shared memory: a file in the runtime directory.
std::string memory_endpoint(const BusSection& bus, const std::string& id);

// The folder of this installation's programs: FORETOKEN_PROGRAMS, else that of the one that runs. A
// bundle with a C library of its own sets it, where the running one is the loader.
std::string program_folder();

// "demo" -> the installed or source-tree models/demo-<role> folder (FORETOKEN_MODELS overrides);
// anything else as it is. role: "target" or "draft". Throws FatalError if the demo folder is
// nowhere.
std::string model_folder(const std::string& configured, const std::string& role);
// model.draft of a target that guesses for itself, its weights in four bits.
inline constexpr const char* kSelfDraft = "self:int4";
// What a draft is loaded from, and as which dtype: model.dtype, or int4 of the target's own folder.
struct DraftSource {
  std::string folder;
  std::string dtype;
};
DraftSource draft_source(const ModelSection& model);  // throws as model_folder does
// Folder of model.packed_cache; empty: there is none. "auto" is the service manager's cache folder
// for us, else foretoken in $XDG_CACHE_HOME or ~/.cache where these are full paths, else none.
std::string packed_cache_folder(const ModelSection& model);
// The last part of its path: "b" of "a/b", "a/b/" and "a/b/."; that of the current folder for ".".
std::string name_of_folder(const std::string& folder);
// What clients call the target: model.name, else the name of its folder.
std::string served_model_name(const ModelSection& model);

// What "cpu", "cuda", "cuda:1" or "cuda:0,1" names.
struct DeviceList {
  bool is_cuda = false;
  std::vector<int> numbers = {};  // empty: none by number
};
Result<DeviceList> device_list_of(const std::string& configured);
// How many devices CUDA_VISIBLE_DEVICES shows; nothing where it is not set: as many as there are.
std::optional<int> visible_devices();                      // this process
std::optional<int> visible_devices(const char* variable);  // whom it has this text; null: not set
// Throws FatalError naming `key` where n_here ranks that see the same devices cannot have one each.
void check_devices(const std::string& configured,
                   const std::string& key,
                   int n_here,
                   std::optional<int> n_visible);
// What a rank knows when it takes its device.
struct DeviceView {
  int index_here = 0;                 // its number among
  int n_here = 1;                     // the ranks of its host
  std::optional<int> n_visible = {};  // devices that this rank is shown, if that is known
};
// The device of a rank, for make_backend(): of a list the entry of its number, without a list the
// device of that number, or the only one where the launcher shows each rank one of its own. Numbers
// count what the rank sees. Throws FatalError naming `key`.
std::string rank_device(const std::string& configured,
                        const std::string& key,
                        const DeviceView& view);

// "name=2.5": names to weights.
Result<std::map<std::string, double>> weights_of(const std::vector<std::string>& configured);

// "56000 tokens": the room of a cache in what it is for. How many bytes those are the model knows.
bool is_token_count(const std::string& amount);
// "60%" of free_bytes, or an amount such as "8GiB", "512MiB".
Result<std::uint64_t> memory_bytes(const std::string& amount, std::uint64_t free_bytes);

}  // namespace foretoken
