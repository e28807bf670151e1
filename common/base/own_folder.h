// Folders that only their user may write to, and read if they are made here.
#pragma once

#include <filesystem>
#include <system_error>

namespace foretoken {

// Makes the folder with mode 0700, whatever the umask, and those above it that are missing with the
// usual mode. A folder that is there keeps its mode. The error is the system's.
std::error_code make_own_folder(const std::filesystem::path& folder);

// Takes the permission to write from the group and from others, if this user owns the folder and it
// is no link.
void close_to_others(const std::filesystem::path& folder);

}  // namespace foretoken
