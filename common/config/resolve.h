// From configured words to what they mean on this machine: ipc names to paths, "demo" to a folder,
// "60%" to bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/config/sections.h"

namespace foretoken {

// Folder of ipc names; created with mode 0700 if missing. Throws FatalError if it cannot be, or
// belongs to somebody else.
std::string runtime_directory(const BusSection& bus);
// Full endpoints, as the transport takes them. `id` is the instance: "0".
std::string router_endpoint(const BusSection& bus);
std::string client_endpoint(const BusSection& bus);
std::string draft_endpoint(const BusSection& bus,
                           const std::string& id);  // throws FatalError naming bus.draft
// Where a draft takes links through shared memory: a file in the runtime directory.
std::string memory_endpoint(const BusSection& bus, const std::string& id);

// "demo" -> the installed or source-tree models/demo-<role> folder (FORETOKEN_MODELS overrides);
// anything else as it is. role: "target" or "draft". Throws FatalError if the demo folder is
// nowhere.
std::string model_folder(const std::string& configured, const std::string& role);
// What clients call the target: model.name, else the last part of the folder's name.
std::string served_model_name(const ModelSection& model);

// What "cpu", "cuda", "cuda:1" or "cuda:0,1" names.
struct DeviceList {
  bool is_cuda = false;
  std::vector<int> numbers = {};  // empty: none by number
};
Result<DeviceList> device_list_of(const std::string& configured);
// The device of one of the n_here ranks of a host, for make_backend(): entry `index_here` of the
// list, without a list the device of that number. Throws FatalError naming `key`.
std::string rank_device(const std::string& configured,
                        const std::string& key,
                        int index_here,
                        int n_here);

// "56000 tokens": the room of a cache in what it is for. How many bytes those are the model knows.
bool is_token_count(const std::string& amount);
// "60%" of free_bytes, or an amount such as "8GiB", "512MiB".
Result<std::uint64_t> memory_bytes(const std::string& amount, std::uint64_t free_bytes);

}  // namespace foretoken
