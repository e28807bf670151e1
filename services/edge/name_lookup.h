// The addresses of a host's name within a time limit. The system's look-up blocks and cannot be
// ended: it has a thread of its own, and one that takes longer than the limit is left to itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "services/edge/asio.h"

namespace foretoken::edge {

using Endpoints = std::vector<boost::asio::ip::tcp::endpoint>;
using NameLookup =
    std::function<Result<Endpoints>(const std::string& host, const std::string& port)>;

// Of the system; blocks.
Result<Endpoints> look_up(const std::string& host, const std::string& port);

// A numeric address is its own. An Error: no such name, or no answer by the deadline. What it
// refers to outlives it.
boost::asio::awaitable<Result<Endpoints>> endpoints_of(boost::asio::io_context& context,
                                                       const std::string& host,
                                                       const std::string& port,
                                                       TimePoint deadline,
                                                       const NameLookup& lookup);

}  // namespace foretoken::edge
