// The status of a system as a table for people. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/messages/client.h"

namespace foretoken::cli {

// Tokens a second of each service between two looks: those committed, drafted or decoded. A service
// that is new, or was started again, is left out.
using TokenRates = std::map<std::string, double>;
TokenRates token_rates(const wire::StatusReply& before,
                       const wire::StatusReply& now,
                       double seconds);

enum class Rates : bool { kLeftOut, kShown };
// A line of headings, then one for each service; cells of a column begin below one another.
std::vector<std::string> service_table(const wire::StatusReply& status,
                                       const TokenRates& rates,
                                       Rates shown);
// "ready, 1 active of 20 requests"
std::string summary_of(const wire::StatusReply& status);

std::string as_duration(std::uint64_t seconds);
std::string as_mebibytes(std::uint64_t bytes);

}  // namespace foretoken::cli
