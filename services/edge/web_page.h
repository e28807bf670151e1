// The page at "/": one file without anything from elsewhere, and a policy that lets a browser run
// nothing but it. A browser without scripts reads the state of the services in it.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/messages/client.h"

namespace foretoken::edge {

std::string_view page_html();
// What <noscript> says of the services; every text in it is escaped.
std::string status_html(const Result<wire::StatusReply>& status);
std::string page_with(std::string_view html, const std::string& status);
// Content-Security-Policy: the page's own script and style by their digests, an icon that stands in
// the page, questions to this address.
std::string page_policy(std::string_view html);

}  // namespace foretoken::edge
