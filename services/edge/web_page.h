// The page at "/": one file without anything from elsewhere, and a policy that lets a browser run
// nothing but it.
#pragma once

#include <string>
#include <string_view>

namespace foretoken::edge {

std::string_view page_html();
// Content-Security-Policy: the page's own script and style by their digests, questions to this
// address.
std::string page_policy(std::string_view html);

}  // namespace foretoken::edge
