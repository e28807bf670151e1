// From configured words to what they mean on this machine: ipc names to paths, "demo" to a folder,
// "60%" to bytes.
#pragma once

#include <cstdint>
#include <string>

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

// "60%" of free_bytes, or an amount such as "8GiB", "512MiB".
Result<std::uint64_t> memory_bytes(const std::string& amount, std::uint64_t free_bytes);

}  // namespace foretoken
